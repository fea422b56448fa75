package keyed

import (
	"math/rand/v2"
	"strings"
	"sync/atomic"
)

// Keys are 20 bytes long. Many of them are one string, in which they stand one
// after the other: it holds no pointers, so that the keys that a benchmark has
// ready cost the collector nothing.
const (
	keyLen    = 20
	keyPrefix = "user-"
)

// block is how many keys are made and handed out at once.
const block = 1000

// keysFrom returns n keys in one string: number from and those after it.
func keysFrom(from, n int) string {
	var b strings.Builder
	b.Grow(n * keyLen)
	for i := range n {
		key := keyOf(from + i)
		b.Write(key[:])
	}
	return b.String()
}

// keyOf returns key number i, for example "user-000000000000042".
func keyOf(i int) (key [keyLen]byte) {
	copy(key[:], keyPrefix)
	for at := keyLen - 1; at >= len(keyPrefix); at-- {
		key[at] = byte('0' + i%10)
		i /= 10
	}
	return key
}

// A walk hands out keys in a random but fixed order, over and over. All stores of
// a case have the same walk. Its keys are copies of those that a store was filled
// with, as the keys of requests are, and stand in the order in which they are
// used, so that reading them costs next to nothing.
type walk struct {
	keys   string       // whole blocks; set by newWalk
	cursor atomic.Int64 // blocks handed out
}

// newWalk returns a walk over the first n keys.
func newWalk(n int) *walk {
	order := rand.New(rand.NewPCG(1, 2)).Perm(n)
	var b strings.Builder
	for at := 0; at < n || at%block != 0; at++ {
		key := keyOf(order[at%n])
		b.Write(key[:])
	}
	return &walk{keys: b.String()}
}

// next returns at most n keys, and at most a block. Each goroutine gets another
// block.
func (w *walk) next(n int) string {
	const size = block * keyLen
	at := int(w.cursor.Add(1)-1) % (len(w.keys) / size) * size
	return w.keys[at : at+min(n, block)*keyLen]
}

// over returns a run that lets the loop take the walk's keys.
func (w *walk) over(l loop) func(n int) (admitted int) {
	return func(n int) (admitted int) {
		for n > 0 {
			keys := w.next(n)
			admitted += l(keys)
			n -= len(keys) / keyLen
		}
		return admitted
	}
}
