package redisstore

import (
	"context"
	"testing"

	"github.com/weirlimit/weir/internal/redistest"
)

// The senders' connections break with the server while nobody uses them. That is noticed before
// the next decision is sent, so that its outcome is not unknown.
func TestServerRestartsWhileIdle(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := open(t, Config{Redis: server(redis.Addr()), Now: still})
	p := twoWays(t)[0]
	for range senders { // so that all of them have been used, whoever goes
		if _, err := s.Take(context.Background(), p, "alice", 1); err != nil {
			t.Fatal(err)
		}
	}
	redis.Kill()
	redis.Restart()
	eventually(t, "the loss to be noticed", func() bool { return s.counts.failures.Load() > 0 })
	for range 2 * senders {
		if _, err := s.Take(context.Background(), p, "alice", 1); err != nil {
			t.Errorf("after the restart: %v", err)
		}
	}
	if n := s.Stats().Unknown; n != 0 {
		t.Errorf("%d unknown outcomes, want none", n)
	}
}
