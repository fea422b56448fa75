package keyed

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// A setting is the limit of every key, the same for all stores: so many units per
// period, all at once if wanted.
type setting struct {
	units int64
	per   time.Duration
}

func (s setting) perSecond() float64 { return float64(s.units) / s.per.Seconds() }

var (
	// plenty admits every call: 100,000 per second and a burst of
	// 1,000,000,000. The period is long enough that no window ends
	// while it is measured.
	plenty = setting{units: 1_000_000_000, per: 10_000 * time.Second}

	// scarce admits one call per key.
	scarce = setting{units: 1, per: time.Hour}
)

// A loop asks for one unit of each of keys, which is a string of keys of keyLen
// bytes, and returns how many were admitted. It is the store's own, so that the
// call in it is direct. Several goroutines may call it.
type loop func(keys string) (admitted int)

// A store is a library's way to keep keys apart.
type store struct {
	name   string // as in harness.Contender, like the next three
	kind   harness.Kind
	module string
	goal   float64

	open func(s setting) (opened, error)
}

// opened is a limiter of a store.
type opened struct {
	take loop

	// size returns how many keys have a place of their own. It is nil if the
	// limiter does not tell.
	size func() int
}

// fill takes one unit of each of the first n keys, in order. Stores that keep the
// strings they are given keep these.
func (o opened) fill(n int) error {
	for from := 0; from < n; from += block {
		some := min(block, n-from)
		if got := o.take(keysFrom(from, some)); got != some {
			return fmt.Errorf("admitted %d of %d new keys", got, some)
		}
	}
	return o.check(n)
}

// check makes sure that n keys have a place of their own.
func (o opened) check(n int) error {
	if o.size == nil {
		return nil
	}
	if got := o.size(); got != n {
		return fmt.Errorf("%d keys have a place of their own, want %d", got, n)
	}
	return nil
}

// walking returns the contender that takes the walk's keys, n different ones, all
// of which are there already.
func (st store) walking(s setting, n int, w func() *walk) harness.Contender {
	return harness.Contender{Name: st.name, Kind: st.kind, Module: st.module, Goal: st.goal, New: func() (harness.Run, error) {
		o, err := st.open(s)
		if err != nil {
			return nil, err
		}
		if err := o.fill(n); err != nil {
			return nil, err
		}
		return w().over(o.take), nil
	}}
}
