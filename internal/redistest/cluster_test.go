package redistest

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A killed master is replaced by its replica, and becomes one when it comes back.
func TestClusterKill(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	if len(c.Addrs()) != 6 || len(c.Masters()) != 3 {
		t.Fatalf("%d nodes, %d masters", len(c.Addrs()), len(c.Masters()))
	}
	wantKeys(t, c)
	old := c.MasterOf("{a}key")
	next := c.ReplicaOf(old)
	old.WaitReplica(next)

	begin := time.Now()
	old.Kill()
	c.WaitOK()
	t.Logf("well after %v", time.Since(begin))
	if got := c.MasterOf("{a}other"); got != next {
		t.Errorf("%s took over, want %s", got.Addr(), next.Addr())
	}
	wantText(t, next, "value", "GET", "{a}key")
	wantKeys(t, c)

	begin = time.Now()
	old.Restart()
	c.WaitOK()
	t.Logf("well again after %v", time.Since(begin))
	if slices.Contains(c.Masters(), old) {
		t.Error("it came back as a master")
	}
}

// A master that hangs is replaced, too, with every option at work.
func TestClusterPause(t *testing.T) {
	t.Parallel()
	c := startCluster(t, Password("", "secret"), TLS(), NodeTimeout(500*time.Millisecond))
	masters := c.Masters()
	begin := time.Now()
	masters[0].Pause()
	c.WaitOK()
	t.Logf("well after %v", time.Since(begin))
	wantKeys(t, c)
	masters[0].Resume()
	c.WaitOK()
	wantKeys(t, c)
}

func startCluster(t *testing.T, opts ...Option) *Cluster {
	t.Helper()
	begin := time.Now()
	c := StartCluster(t, opts...)
	t.Logf("started in %v", time.Since(begin))
	return c
}

// wantKeys writes keys at the masters that MasterOf names.
func wantKeys(t *testing.T, c *Cluster) {
	t.Helper()
	used := map[*Server]bool{}
	for i := range 26 {
		key := fmt.Sprintf("{%c}key", 'a'+i)
		wantText(t, c.MasterOf(key), "OK", "SET", key, "value")
		used[c.MasterOf(key)] = true
	}
	if len(used) != shardCount {
		t.Errorf("26 keys lie on %d masters, want %d", len(used), shardCount)
	}
}
