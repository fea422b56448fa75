package redistier

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/store/redisstore"
	"github.com/weirlimit/weir/tiered"
)

// After a restart messages flow again, listeners have received nil, and no node counts fewer nodes
// because the server has forgotten them.
func TestRestart(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	const every = time.Second
	c := Config{Redis: server(redis.Addr()), Every: every}
	a, b := open(t, c), open(t, c)
	e, back := listen(t, b), listen(t, a)
	awaitNodes(t, 2, a, b)

	redis.Kill()
	eventually(t, "failed heartbeats", func() bool { return a.Stats().FailedHeartbeats > 1 && b.Stats().FailedHeartbeats > 1 })
	began := time.Now()
	if err := a.Publish(t.Context(), []tiered.Message{reset("lost")}); !errors.Is(err, ErrUnavailable) || time.Since(began) > time.Second {
		t.Errorf("publish to nobody: error %v after %v, want ErrUnavailable at once", err, time.Since(began))
	}
	if e.nils.Load() != 1 || a.Nodes() != 2 || b.Nodes() != 2 {
		t.Errorf("in the outage: %d nils, %d and %d nodes; want 1, 2 and 2", e.nils.Load(), a.Nodes(), b.Nodes())
	}
	redis.Restart()
	restarted := time.Now()
	eventually(t, "nil", func() bool { return e.nils.Load() == 2 && back.nils.Load() == 2 })
	t.Logf("subscribed again %v after the restart", time.Since(restarted).Round(time.Millisecond))
	for time.Since(restarted) < every*3/2 { // both have sent a heartbeat then
		if a.Nodes() != 2 || b.Nodes() != 2 {
			t.Fatalf("after the restart: %d and %d nodes, want 2", a.Nodes(), b.Nodes())
		}
		time.Sleep(time.Millisecond)
	}
	publish(t, a, reset("again"), tiered.Message{Kind: tiered.KeyDenied, Policy: "p", Key: "denied", Until: weir.Now() + 1e9})
	e.await(t, "again")
	e.await(t, "denied")
	publish(t, b, reset("back"))
	back.await(t, "back")
	a.Close()
	awaitNodes(t, 1, b)
}

// The connection to a silent server is closed, and opened again; Publish ends with its context.
func TestSilence(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	relay := redistest.NewRelay(t, redis.Addr())
	to := server(relay.Addr())
	to.Timeout = 500 * time.Millisecond
	a, b := open(t, Config{Redis: server(redis.Addr())}), open(t, Config{Redis: to, Every: 100 * time.Millisecond})
	e := listen(t, b)
	relay.Block()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := b.Publish(ctx, []tiered.Message{reset("late")}); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
		t.Errorf("publish to a silent server: error %v after %v", err, time.Since(began))
	}
	eventually(t, "the subscription to end", func() bool { return !b.subscribed.Load() })
	t.Logf("the subscription ended %v after the server fell silent", time.Since(began).Round(time.Millisecond))
	relay.Unblock()
	eventually(t, "nil", func() bool { return e.nils.Load() >= 2 })
	awaitMessage(t, a, e, "again")
}

// A connection that is cut is made again.
func TestCut(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	relay := redistest.NewRelay(t, redis.Addr())
	a, b := open(t, Config{Redis: server(redis.Addr())}), open(t, Config{Redis: server(relay.Addr())})
	e := listen(t, b)
	for i := range int64(3) {
		relay.Cut()
		eventually(t, "nil", func() bool { return e.nils.Load() == i+2 })
	}
	publish(t, a, reset("again"))
	e.await(t, "again")
	redis.MustDo("SCRIPT", "FLUSH")
	if err := a.heartbeat(t.Context()); err != nil {
		t.Errorf("heartbeat after SCRIPT FLUSH: %v", err)
	}
}

// Close does not wait long for a server that hangs.
func TestCloseWhileServerHangs(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	b := open(t, Config{Redis: server(redis.Addr()), Every: 50 * time.Millisecond})
	redis.Pause()
	defer redis.Resume()
	began := time.Now()
	b.Close()
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("it took %v", took)
	}
}

// New ends with its context.
func TestNewGivesUp(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	relay := redistest.NewRelay(t, redis.Addr())
	relay.Block()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := New(ctx, Config{Redis: server(relay.Addr())}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

// After a failover messages go by the new primary, whether the old one lives on or not.
func TestSentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	c := Config{
		Redis: redisstore.Server{Addrs: s.SentinelAddrs(), Sentinel: s.MasterName(), Timeout: time.Second, DialTimeout: time.Second},
		Every: 200 * time.Millisecond,
	}
	a, b := open(t, c), open(t, c)
	e := listen(t, b)
	publish(t, a, reset("at first"))
	e.await(t, "at first")
	old := s.Primary()
	old.Kill()
	wantPromoted(t, s, a, b, e, "killed")

	old.Restart()
	s.WaitInSync()
	s.Failover()
	wantPromoted(t, s, a, b, e, "demoted")
}

// wantPromoted waits until both nodes are at the new primary, and talk.
func wantPromoted(t *testing.T, s *redistest.Sentinel, a, b *Bus, e *recorder, how string) {
	t.Helper()
	next, promoted := s.WaitPromoted(), time.Now()
	awaitMessage(t, a, e, how)
	t.Logf("the primary was %s: messages flow again %v after the promotion", how, time.Since(promoted).Round(time.Millisecond))
	eventually(t, "both nodes at the new primary", func() bool {
		return next.MustDo("ZCARD", "weir:nodes").Text == "2" && next.MustDo("PUBSUB", "NUMSUB", "weir:tier").Items[1].Text == "2"
	})
	t.Logf("both are there %v after it; %d nils", time.Since(promoted).Round(time.Millisecond), e.nils.Load())
	awaitMessage(t, a, e, "then "+how)
	awaitNodes(t, 2, a, b)
	if e.nils.Load() < 2 {
		t.Errorf("%d nils, want another one", e.nils.Load())
	}
}

// Messages cross a cluster, also after the node with the subscriptions was replaced.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	c := Config{Redis: redisstore.Server{Addrs: cluster.Addrs()[:1], Timeout: time.Second, DialTimeout: time.Second}, Every: 200 * time.Millisecond}
	a, b := open(t, c), open(t, c)
	e := listen(t, b)
	publish(t, a, reset("before"), tiered.Message{Kind: tiered.KeyDenied, Policy: "p", Key: "denied", Until: weir.Now() + 1e9})
	e.await(t, "before")
	e.await(t, "denied")
	awaitNodes(t, 2, a, b)
	for _, node := range cluster.Masters() { // others may publish elsewhere
		node.MustDo("PUBLISH", "weir:tier", encoded(reset("at "+node.Addr())))
		e.await(t, "at "+node.Addr())
	}

	old := cluster.MasterOf("weir:nodes")
	old.WaitReplica(cluster.ReplicaOf(old))
	old.Kill()
	killed := time.Now()
	eventually(t, "nil", func() bool { return e.nils.Load() >= 2 })
	awaitMessage(t, a, e, "after")
	t.Logf("messages flow again %v after the master was killed", time.Since(killed).Round(time.Millisecond))
	cluster.WaitOK()
	next := cluster.MasterOf("weir:nodes")
	eventually(t, "both nodes at the new master", func() bool { return next.MustDo("ZCARD", "weir:nodes").Text == "2" })
	awaitNodes(t, 2, a, b)
}
