package apitest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
)

// Noon is the initial time of clocks.
var Noon = time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC)

// Clock is a manual clock: it advances only by Pass. Make one with NewClock. Its methods may be
// called by any number of goroutines.
type Clock struct{ now atomic.Int64 }

// NewClock returns a clock whose time is Noon.
func NewClock() *Clock {
	c := &Clock{}
	c.now.Store(int64(weir.Instant(Noon.UnixNano())))
	return c
}

// Now returns the clock's time.
func (c *Clock) Now() weir.Instant { return weir.Instant(c.now.Load()) }

// Pass advances the clock.
func (c *Clock) Pass(d time.Duration) { c.now.Add(int64(d)) }

// Table returns a table that reads the time from now or, if that is nil, from the system clock.
func Table(t testing.TB, now func() weir.Instant) *memstore.Table {
	t.Helper()
	table, err := memstore.New(memstore.Config{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return table
}
