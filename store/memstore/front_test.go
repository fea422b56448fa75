package memstore

import (
	"sync"
	"sync/atomic"
	"testing"
)

// A front is switched between a small and a large block while others look through
// it. Behind the small block lies what must never be found: whoever takes the slots
// of one with the rows of the other finds it.
func TestFrontsAreNotTorn(t *testing.T) {
	const trap = firstTag + 99
	small, large := newBlock(1, 4, false), newBlock(1, 1024, false)
	behind := make([]atomic.Uint64, len(large.rows))
	for i := len(small.rows); i < len(behind); i++ {
		behind[i].Store(trap)
	}
	small.rows = behind[:len(small.rows)]

	var f front
	f.set(&small)
	var found atomic.Int64
	var stop atomic.Bool
	var readers, writer sync.WaitGroup
	for i := range 8 {
		readers.Go(func() {
			for h := uint64(i); !stop.Load(); h += 0x9e3779b97f4a7c15 {
				if f.find(h, trap) != nil {
					found.Add(1)
				}
			}
		})
	}
	writer.Go(func() {
		for range lighter(short(1_000_000, 10_000_000)) {
			f.set(&large)
			f.set(&small)
		}
		stop.Store(true)
	})
	writer.Wait()
	readers.Wait()
	if n := found.Load(); n > 0 {
		t.Errorf("%d looks went beyond the end of a block", n)
	}
}

// Every shape of a front is another, also when its version has gone round.
func TestFrontVersions(t *testing.T) {
	var f front
	f.shape.Store(1<<64 - 1<<32 | 4) // the last version
	last := f.shape.Load()
	b := newBlock(1, 4, false)
	for range 3 {
		f.set(&b)
		if shape := f.shape.Load(); shape == last || shape == 0 || uint32(shape) != 4 {
			t.Errorf("shape %x after %x", shape, last)
		}
		last = f.shape.Load()
	}
}
