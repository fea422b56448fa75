package tiered_test

import (
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/store/storetest"
	"github.com/weirlimit/weir/tiered"
)

// A tier in Exact mode that believes no denial for more than a nanosecond is what it
// stands in front of.
func TestConformance(t *testing.T) {
	without := map[storetest.Demand]string{storetest.ChargesUsed: "the usage of its own node is all that a tier carries"}
	storetest.Run(t, storetest.Store{Without: without, Open: func(t testing.TB, o storetest.Options) weir.Limiter {
		store, err := memstore.New(memstore.Config{MaxKeys: o.MaxKeys, MaxHolds: o.MaxHolds, Now: o.Clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		return newTier(t, tiered.Config{Store: store, MaxDeny: 1, Timeout: 1 << 40})
	}})
}
