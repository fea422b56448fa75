package measure

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
)

// random returns operations in the order of their ends, over some seconds.
func random(n int, seconds float64) []Op {
	rnd := rand.New(rand.NewPCG(1, 2))
	ops := make([]Op, n)
	for i := range ops {
		end := seconds * 1000 * float64(i+1) / float64(n)
		service := 100 * rnd.Float64()
		ops[i] = op(end-service-50*rnd.ExpFloat64(), end-service, end)
		if rnd.IntN(10) == 0 {
			ops[i].OK, ops[i].Code = false, fmt.Sprint(500+rnd.IntN(4))
		}
	}
	return ops
}

// Many recorders make the report that one would have made, whatever the order in which
// they hand over.
func TestManyRecordersAreLikeOne(t *testing.T) {
	ops := random(10_000, 30)
	want := recorded(ops...).Report(after(30_000), Meta{})
	for _, workers := range []int{2, 7, 100} {
		r := NewRun(t0)
		recorders := make([]*Recorder, workers)
		for i := range recorders {
			recorders[i] = r.Recorder()
		}
		for i, o := range ops {
			recorders[i%workers].Record(o)
			if i%999 == 0 {
				r.Snapshot(o.Ended)
			}
		}
		if diff := cmp.Diff(want, r.Report(after(30_000), Meta{})); diff != "" {
			t.Errorf("%d recorders (-one +many):\n%s", workers, diff)
		}
	}
}

// Workers record, snapshots are taken, the target changes and new workers come, all at
// once, and nothing is lost or counted twice.
func TestConcurrentUse(t *testing.T) {
	const workers, each = 16, 2000
	r := NewRun(t0)
	stop := make(chan struct{})
	var watchers, wg sync.WaitGroup
	watchers.Go(func() {
		last := int64(0)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			s := r.Snapshot(after(float64(i)))
			if s.Total.Ops < last {
				t.Errorf("%d operations, after %d", s.Total.Ops, last)
			}
			last = s.Total.Ops
			r.SetTarget(after(float64(i)), float64(i))
		}
	})
	for w := range workers {
		wg.Go(func() {
			rc := r.Recorder()
			for i := range each {
				at := float64(i + w)
				rc.Begin(after(at), after(at))
				rc.Record(op(at, at, at+1))
			}
		})
	}
	wg.Wait()
	close(stop)
	watchers.Wait()
	if got := r.Report(after(each), Meta{}); got.Operations != workers*each || got.Unfinished != 0 {
		t.Errorf("%d operations, %d unfinished, want %d and none", got.Operations, got.Unfinished, workers*each)
	}
}

// A worker hands over before its buffer is full; if it finds the run busy, it goes on
// until it is.
func TestABusyRunIsNotWaitedFor(t *testing.T) {
	r := NewRun(t0)
	rc := r.Recorder()
	for range drainFrom {
		rc.Record(op(0, 0, 1))
	}
	if rc.n != 0 {
		t.Fatalf("%d operations are left with the worker", rc.n)
	}
	r.mu.Lock() // as another worker does that hands over
	for range bufferSize - 1 {
		rc.Record(op(0, 0, 1))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		rc.Record(op(0, 0, 1)) // fills it, and waits
	}()
	r.mu.Unlock()
	<-done
	if n := r.Report(after(1), Meta{}).Operations; n != drainFrom+bufferSize {
		t.Errorf("%d operations, want %d", n, drainFrom+bufferSize)
	}
}

// A worker that is stuck does not hold up the others' series, and what it says in the
// end still counts where it belongs.
func TestAStuckWorker(t *testing.T) {
	r := NewRun(t0)
	stuck, other := r.Recorder(), r.Recorder()
	stuck.Record(op(0, 0, 1))
	stuck.Begin(after(2), after(2))
	for i := range 20_000 {
		other.Record(op(float64(i), float64(i), float64(i)+1))
	}
	got := r.Report(after(20_000), Meta{})
	if got.Operations != 20_001 || got.Unfinished != 1 || got.OldestUnfinishedMS != 19_998 || len(got.Series) != 20 {
		t.Errorf("%d operations, %d unfinished since %v ms, %d points", got.Operations, got.Unfinished, got.OldestUnfinishedMS, len(got.Series))
	}
	late := op(2, 2, 3500) // ended long ago, but recorded only now
	stuck.Record(late)
	got = r.Report(after(20_000), Meta{})
	if p := got.Series[3]; p.Operations != 1001 || got.Unfinished != 0 {
		t.Errorf("second 3 has %d operations, want 1001; unfinished %d", p.Operations, got.Unfinished)
	}
}

// Recording allocates nothing, handing over included.
func TestRecordDoesNotAllocate(t *testing.T) {
	r := NewRun(t0)
	rc := r.Recorder()
	ok, bad := op(0, 1, 2), failed(0, 1, 900, "timeout")
	both := func() {
		for range bufferSize {
			rc.Begin(ok.Scheduled, ok.Started)
			rc.Record(ok)
			rc.Record(bad)
		}
	}
	both() // the first operation of a second makes its histograms
	if n := testing.AllocsPerRun(20, both); n != 0 {
		t.Errorf("%d operations allocate %v times", 2*bufferSize, n)
	}
}

// The package comment says what it takes.
func TestSizes(t *testing.T) {
	if size := unsafe.Sizeof(Recorder{}); size > 16<<10 {
		t.Errorf("a recorder takes %d bytes", size)
	}
	if size := 2 * unsafe.Sizeof(coarse{}); size > 25_000 {
		t.Errorf("a point takes %d bytes", size)
	}
	if size := 3*newTally().histogram.ByteSize() + 2*int(unsafe.Sizeof(coarse{})); size > 600_000 {
		t.Errorf("a run takes %d bytes", size)
	}
}

func BenchmarkRecord(b *testing.B) {
	r := NewRun(t0)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		rc := r.Recorder()
		for i := weir.Instant(0); pb.Next(); i++ {
			o := op(0, 0.1, 1)
			o.Ended += i % 1e8
			rc.Record(o)
		}
	})
}
