package storetest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// Clock is a time that tests move by hand. Its methods may be called by several
// goroutines.
type Clock struct {
	resolution int64 // set by newClock

	now    atomic.Int64
	stride atomic.Int64 // how far each reading moves it; 0 but in one test
}

// noon is where clocks start: an instant at which every window begins that
// divides twelve hours.
var noon = weir.Instant(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano())

func newClock(resolution time.Duration) *Clock {
	c := &Clock{resolution: int64(resolution)}
	c.now.Store(int64(noon))
	return c
}

// Now reads the clock. It is what a store takes for its time.
func (c *Clock) Now() weir.Instant { return weir.Instant(c.now.Add(c.stride.Load())) }

// Pass moves the clock by d, which may be negative.
func (c *Clock) Pass(d time.Duration) { c.Set(weir.Instant(c.now.Load()).Add(d)) }

// Set moves the clock to an instant. Instants between two steps of the store's
// time are mistakes of the test and panic.
func (c *Clock) Set(to weir.Instant) {
	if int64(to)%c.resolution != 0 {
		panic(fmt.Sprintf("storetest: the clock cannot be set to %v, between two steps of %v", to.Time(), time.Duration(c.resolution)))
	}
	c.now.Store(int64(to))
}
