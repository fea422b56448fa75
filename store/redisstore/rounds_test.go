package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

func TestRoundTimer(t *testing.T) {
	t.Parallel()
	const start = weir.Instant(1_000_000)
	at := func(ms int) weir.Instant { return start.Add(time.Duration(ms) * time.Millisecond) }
	for _, tt := range []struct{ rounds, now, want int }{
		{1, 0, 10},
		{1, 5, 10}, // it began a while ago
		{2, 0, 10},
		{2, 9, 19},
		{2, 12, 20},
		{4, 25, 35},
		{4, 35, 40},
		{9, 35, 40},
		{9, 41, 40},
	} {
		timer := newRoundTimer(start, tt.rounds, 10*time.Millisecond)
		if got := timer.until(at(tt.now)); got != at(tt.want) {
			t.Errorf("a round of %d that begins after %d ms ends after %v, want %d ms", tt.rounds, tt.now, got.Sub(start), tt.want)
		}
	}
}

// A batch on three masters, each of which takes less than the time-out, is carried out although
// all of them together take longer.
func TestEachRoundHasItsTime(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	relays := relayCluster(t, cluster)
	const timeout = 2 * time.Second
	s := open(t, Config{Redis: Server{Addrs: []string{relays[0].Addr()}}, Timeout: timeout, Now: still})
	p := twoWays(t)[0]
	charges := onThree(s, p, 1, 1, 1)
	all := &weir.Batch{Op: weir.TakeAll, Charges: charges}
	if n := s.Rounds(all); n != 3 {
		t.Errorf("a batch on three masters has %d rounds, want 3", n)
	}
	do(t, s, all) // so that scripts and records are known
	wantEach(t, "after the first", s, charges, 99, 99, 99)
	for _, r := range relays {
		r.Delay(timeout * 2 / 5)
	}
	if err := s.Do(context.Background(), &weir.Batch{Op: weir.TakeAll, Charges: charges}); err != nil {
		t.Errorf("a batch whose rounds each took two fifths of the time-out: %v", err)
	}
	for _, r := range relays {
		r.Delay(0)
	}
	if n := s.Stats().Timeouts; n != 0 {
		t.Errorf("%d callers left, want none", n)
	}
	wantEach(t, "after the second", s, charges, 98, 98, 98)
	testRounds(t, s, p)
}

func testRounds(t *testing.T, s *Store, p *weir.Policy) {
	t.Helper()
	var many []weir.Charge
	for i := range 9 {
		many = append(many, weir.Charge{Policy: p, Key: fmt.Sprint("many", i), Cost: 1})
	}
	same := []weir.Charge{many[0], many[0]}
	for _, tt := range []struct {
		b    weir.Batch
		want int
	}{
		{weir.Batch{Op: weir.TakeAll}, 1},
		{weir.Batch{Op: weir.TakeAll, Charges: many[:1]}, 1},
		{weir.Batch{Op: weir.TakeAll, Charges: same}, 1},
		{weir.Batch{Op: weir.TakeAll, Charges: many[:2]}, 2},
		{weir.Batch{Op: weir.ReserveAll, Charges: many}, 4},
		{weir.Batch{Op: weir.TakeEach, Charges: many}, 1},
		{weir.Batch{Op: weir.PeekEach, Charges: many}, 1},
	} {
		if got := s.Rounds(&tt.b); got != tt.want {
			t.Errorf("%s of %d charges: %d rounds, want %d", ops[tt.b.Op], len(tt.b.Charges), got, tt.want)
		}
	}
}

// relayCluster puts a relay in front of each node of a cluster, and returns when all nodes send
// clients there.
func relayCluster(t *testing.T, cluster *redistest.Cluster) (relays []*redistest.Relay) {
	t.Helper()
	for _, node := range cluster.Nodes() {
		r := redistest.NewRelay(t, node.Addr())
		relays = append(relays, r)
		_, port, _ := strings.Cut(r.Addr(), ":")
		node.MustDo("CONFIG", "SET", "cluster-announce-port", port, "cluster-announce-bus-port", strconv.Itoa(node.Port()+10000))
	}
	eventually(t, "all nodes to announce the relays", func() bool {
		for _, node := range cluster.Nodes() {
			text := node.MustDo("CLUSTER", "NODES").Text
			for _, r := range relays {
				if !strings.Contains(text, " "+r.Addr()+"@") {
					return false
				}
			}
		}
		return true
	})
	return relays
}
