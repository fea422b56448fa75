package memstore_test

import (
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/store/storetest"
)

// The table passes with either hash and with full keys.
func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name   string
		config memstore.Config
	}{
		{"plain", memstore.Config{}},
		{"snapshots and full keys", memstore.Config{Snapshots: true, KeepKeys: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			storetest.Run(t, storetest.Store{Open: func(t testing.TB, o storetest.Options) weir.Limiter {
				c.config.MaxKeys, c.config.MaxHolds, c.config.Now = o.MaxKeys, o.MaxHolds, o.Clock.Now
				table, err := memstore.New(c.config)
				if err != nil {
					t.Fatal(err)
				}
				return table
			}})
		})
	}
}
