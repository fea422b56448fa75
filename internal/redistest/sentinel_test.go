package redistest

import (
	"testing"
	"time"
)

// A killed primary is replaced, and follows its successor when it comes back.
func TestSentinelKill(t *testing.T) {
	t.Parallel()
	s := startSentinel(t)
	if got := len(s.SentinelAddrs()); got != 3 {
		t.Errorf("%d Sentinels, want 3", got)
	}
	old, next := s.Primary(), s.Replica()
	old.MustDo("SET", "key", "value")
	old.WaitReplica(next)
	wantError(t, next, "READONLY", "SET", "key", "other")

	begin := time.Now()
	old.Kill()
	if got := s.WaitPromoted(); got != next || s.Primary() != next || s.Replica() != old {
		t.Errorf("%s was promoted, want %s", got.Addr(), next.Addr())
	}
	t.Logf("promoted after %v", time.Since(begin))
	wantText(t, next, "value", "GET", "key")
	wantText(t, next, "OK", "SET", "key", "new")

	begin = time.Now()
	old.Restart()
	s.WaitInSync()
	t.Logf("back as a replica after %v", time.Since(begin))
	wantText(t, old, "new", "GET", "key")
}

// A failover with both well, there and back, with every option at work.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	s := startSentinel(t, Password("alice", "p w"), TLS())
	first := s.Primary()
	begin := time.Now()
	s.Failover()
	s.WaitPromoted()
	t.Logf("promoted after %v", time.Since(begin))
	s.WaitInSync()
	t.Logf("in sync after %v", time.Since(begin))
	wantError(t, first, "READONLY", "SET", "key", "value")
	wantText(t, s.Primary(), "OK", "SET", "key", "value")
	s.Failover()
	if got := s.WaitPromoted(); got != first {
		t.Errorf("two failovers led to %s, not back to %s", got.Addr(), first.Addr())
	}
	wantText(t, first, "OK", "SET", "key", "value")
}

func startSentinel(t *testing.T, opts ...Option) *Sentinel {
	t.Helper()
	begin := time.Now()
	s := StartSentinel(t, opts...)
	t.Logf("started in %v", time.Since(begin))
	return s
}
