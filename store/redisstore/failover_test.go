package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/tiered"
)

// When a master of a cluster dies that has many keys in use, a local tier decides on them
// locally and flushes that usage to the promoted replica: on hundreds of slots, for which the
// client still has the dead master in its slot table. No usage may be lost.
func TestPromotedReplicaReceivesAll(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.NodeTimeout(time.Second), redistest.Config("cluster-require-full-coverage", "no"))
	s := open(t, Config{Redis: Server{Addrs: cluster.Addrs(), Timeout: time.Second, DialTimeout: time.Second}, Timeout: 50 * time.Millisecond})
	local, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := tiered.New(tiered.Config{Store: s, Local: local, Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p, err := weir.NewPolicy("many", weir.Limit{Rate: 1_000_000, Per: weir.Every(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for i := 0; len(keys) < 2000; i++ {
		if key := fmt.Sprint("k", i); shard(rowKey(s.rowPrefix(p.Name()), key)) == 2 {
			keys = append(keys, key)
		}
	}
	var stop atomic.Bool
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for !stop.Load() {
				if _, err := l.Take(context.Background(), p, keys[rand.IntN(len(keys))], 1); err != nil {
					t.Error(err)
				}
				time.Sleep(4 * time.Millisecond)
			}
		})
	}
	defer callers.Wait()
	defer stop.Store(true)

	replica := cluster.ReplicaOf(cluster.Masters()[2])
	cluster.Masters()[2].Kill()
	eventually(t, "some partitions have an open breaker", func() bool { return l.Stats().OpenBreakers > 0 && l.Stats().Unsynced > 100 })
	eventually(t, "the replica is promoted", func() bool { return strings.Contains(replica.MustDo("INFO", "replication").Text, "role:master") })
	owed := l.Stats().Unsynced
	eventually(t, "all breakers are closed", func() bool { return l.Stats().OpenBreakers == 0 })
	stop.Store(true)
	callers.Wait()
	eventually(t, "nothing is owed", func() bool { return l.Stats().Unsynced == 0 })
	if lost := l.Stats().Lost; lost > 0 {
		t.Errorf("of about %d units that were granted locally, %d may not have been flushed to the promoted replica", owed, lost)
	}
}
