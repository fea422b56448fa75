package apitest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
)

// Noon is when clocks begin.
var Noon = time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC)

// Clock stands still until it is moved. Make one with NewClock. Its methods may be called by
// any number of goroutines.
type Clock struct{ now atomic.Int64 }

// NewClock returns a clock that stands at Noon.
func NewClock() *Clock {
	c := &Clock{}
	c.now.Store(int64(weir.Instant(Noon.UnixNano())))
	return c
}

// Now returns what the clock shows.
func (c *Clock) Now() weir.Instant { return weir.Instant(c.now.Load()) }

// Pass moves the clock.
func (c *Clock) Pass(d time.Duration) { c.now.Add(int64(d)) }

// Table returns a table that goes by a clock or, if now is nil, by the machine's.
func Table(t testing.TB, now func() weir.Instant) *memstore.Table {
	t.Helper()
	table, err := memstore.New(memstore.Config{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return table
}
