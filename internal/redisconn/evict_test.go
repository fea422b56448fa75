package redisconn

import (
	"slices"
	"testing"

	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/secret"
)

func TestEvictors(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.MustDo("ACL", "SETUSER", "limited", "on", ">"+canary, "~*", "+@all")
	conn := open(t, Config{Addrs: []string{server.Addr()}, Username: "limited", Password: secret.New(canary)})
	for _, tt := range []struct {
		most, policy string
		evicts       bool
	}{
		{"0", "noeviction", false},
		{"0", "allkeys-lru", false},
		{"100mb", "noeviction", false},
		{"100mb", "allkeys-lru", true},
		{"100mb", "allkeys-random", true},
		{"100mb", "volatile-ttl", true},
	} {
		server.MustDo("CONFIG", "SET", "maxmemory", tt.most, "maxmemory-policy", tt.policy)
		wantEvictors(t, conn, tt.evicts, Evictor{server.Addr(), tt.policy})
	}
	server.MustDo("ACL", "SETUSER", "limited", "-info")
	wantEvictors(t, conn, false, Evictor{})
}

func wantEvictors(t *testing.T, conn *Conn, evicts bool, e Evictor) {
	t.Helper()
	var want []Evictor
	if evicts {
		want = append(want, e)
	}
	if got := conn.Evictors(testContext(t)); !slices.Equal(got, want) {
		t.Errorf("%+v: got %+v, want %+v", e, got, want)
	}
}

// testClusterEvictors is for a cluster of which one master evicts keys, and a replica, which does
// not by itself.
func testClusterEvictors(t *testing.T, cluster *redistest.Cluster, conn *Conn) {
	master := cluster.Masters()[1]
	replica := cluster.ReplicaOf(cluster.Masters()[0])
	for _, node := range []*redistest.Server{master, replica} {
		node.MustDo("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lfu")
	}
	wantEvictors(t, conn, true, Evictor{master.Addr(), "allkeys-lfu"})
}
