package redisconn

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/secret"
)

// TestCluster shares a cluster, which takes seconds to start. Its parts run in order.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.Password("alice", "secret"))
	c := Config{Addrs: cluster.Addrs()[:1], Username: "alice", Password: secret.New("secret")}
	conn := open(t, c)
	if !conn.Cluster {
		t.Error("it is no cluster")
	}
	t.Run("keys", func(t *testing.T) { testClusterKeys(t, cluster, conn) })
	t.Run("redirection", func(t *testing.T) { testRedirection(t, cluster, conn) })
	t.Run("addresses", func(t *testing.T) {
		c := c
		c.Addrs = []string{refusedAddr(t), cluster.ReplicaOf(cluster.Masters()[2]).Addr()}
		wantWorks(t, open(t, c), "address")
	})
	t.Run("DB", func(t *testing.T) {
		c := c
		c.DB = 1
		wantRefused(t, c, c.Addrs[0]+": database 1: SELECT is not allowed in cluster mode")
	})
	t.Run("evictors", func(t *testing.T) { testClusterEvictors(t, cluster, conn) })
	t.Run("watch", func(t *testing.T) { testClusterWatch(t, cluster, conn) })
}

// testClusterKeys writes a key to each master, and compares Slot with Redis's.
func testClusterKeys(t *testing.T, cluster *redistest.Cluster, conn *Conn) {
	for master, key := range keyPerMaster(t, cluster, "key:") {
		wantWorks(t, conn, key)
		if got := master.MustDo("GET", key).Text; got != "1" {
			t.Errorf("%s at its master = %q", key, got)
		}
	}
	node := cluster.Nodes()[0]
	for _, key := range []string{"", "a", "{a}b", "{}a", "a{b", "}{a}", "{{a}}", "ü{\x00\xff}"} {
		if want := node.MustDo("CLUSTER", "KEYSLOT", key).Text; want != fmt.Sprint(Slot(key)) {
			t.Errorf("Slot(%q) = %d, want %s", key, Slot(key), want)
		}
	}
}

// testRedirection sends commands to the wrong master: although nothing is tried again, MOVED is
// followed, and the command is executed once.
func testRedirection(t *testing.T, cluster *redistest.Cluster, conn *Conn) {
	keys := keyPerMaster(t, cluster, "redirected:")
	for _, key := range keys {
		for _, other := range keys {
			cmd := conn.Client.B().Incr().Key(key).Build().SetSlot(other)
			if err := conn.Client.Do(testContext(t), cmd).Error(); err != nil {
				t.Errorf("%s by way of %s: %v", key, other, err)
			}
		}
	}
	for master, key := range keys {
		if got := master.MustDo("GET", key).Text; got != "3" {
			t.Errorf("%s was incremented %s times, want 3", key, got)
		}
	}
}

// testClusterWatch changes a key on each master, also after one of them was replaced.
func testClusterWatch(t *testing.T, cluster *redistest.Cluster, conn *Conn) {
	var seen record
	stop := startWatch(t, conn, "watched:", seen.add)
	if got := seen.take(); got != "nil nil nil" {
		t.Errorf("at the beginning: %s, want nil from each master", got)
	}
	keys := keyPerMaster(t, cluster, "watched:")
	for master, key := range keys {
		master.MustDo("SET", key, "x")
		seen.await(t, key)
	}
	if got := seen.take(); got != "" {
		t.Errorf("then %s: replicas are watched, too?", got)
	}

	old := cluster.Masters()[0]
	next := cluster.ReplicaOf(old)
	old.WaitReplica(next)
	old.Kill()
	seen.await(t, "nil")
	cluster.WaitOK()
	awaitChange(t, next, &seen, keys[old])
	stop()
}

// keyPerMaster returns a key with the prefix for each master.
func keyPerMaster(t *testing.T, cluster *redistest.Cluster, prefix string) map[*redistest.Server]string {
	t.Helper()
	keys := map[*redistest.Server]string{}
	for i := 0; len(keys) < len(cluster.Masters()); i++ {
		key := fmt.Sprint(prefix, i)
		if master := cluster.MasterOf(key); keys[master] == "" {
			keys[master] = key
		}
	}
	return keys
}
