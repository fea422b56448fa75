package tiered_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/tiered"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

func newPolicy(t testing.TB, limits ...weir.Limit) *weir.Policy {
	t.Helper()
	p, err := weir.NewPolicy("p", limits...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// newTier returns a Limiter with a table of its own unless c has one.
func newTier(t testing.TB, c tiered.Config) *tiered.Limiter {
	t.Helper()
	if c.Local == nil {
		c.Local = newTable(t)
	}
	if c.Store == nil {
		c.Store = newTable(t)
	}
	l, err := tiered.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func newTable(t testing.TB) *memstore.Table {
	t.Helper()
	table, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}
