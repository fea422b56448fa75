package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// What was debited was used: it stays, although its caller has left.
func TestDebitOfOneWhoLeaves(t *testing.T) {
	redis := redistest.Start(t)
	relay := redistest.NewRelay(t, redis.Addr())
	for _, p := range twoWays(t) {
		prefix := fmt.Sprintf("debit%d:", prefixes.Add(1))
		s := open(t, Config{Redis: server(relay.Addr()), Prefix: prefix, Now: still})
		direct := open(t, Config{Redis: server(redis.Addr()), Prefix: prefix, Now: still})
		remaining(t, s, p, "k") // it is connected, and knows the policy
		err := leaveOnTheWay(t, s, relay, func(ctx context.Context, s *Store) error {
			return s.Do(ctx, &weir.Batch{Op: weir.DebitEach, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: 130}}})
		})
		if !errors.Is(err, weir.ErrUnknown) || !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "redisstore: ") {
			t.Errorf("%s: got error %v, want redisstore's, with ErrUnknown and context.Canceled", p.Name(), err)
		}
		eventually(t, "the debit to be made", func() bool { return remaining(t, direct, p, "k") == 0 })
		if d, err := s.Take(context.Background(), p, "k", 1); err != nil || d.Allowed { // behind whatever the sender did then
			t.Errorf("%s: take in debt: %v, error %v", p.Name(), d, err)
		}
		if got := s.Stats().Refunded; got != 0 {
			t.Errorf("%s: %d debits were given back, want none", p.Name(), got)
		}
	}
}

// Where one subcall of a batch fails, the error says whether another has changed
// something. The key "bad" has a foreign value, and so every call for it fails.
func TestPartsThatFail(t *testing.T) {
	redis := redistest.Start(t)
	s := open(t, Config{Redis: server(redis.Addr()), Now: still})
	p := newPolicy(t, "p", weir.Limit{Rate: 10, Per: weir.Every(time.Hour), Algorithm: weir.FixedWindow})
	redis.MustDo("SET", rowKey(s.rowPrefix("p"), "bad"), "foreign")
	for _, c := range []struct {
		name    string
		op      weir.Op
		keys    string
		cost    int64
		unknown bool
		left    int64 // of "good"
	}{
		{"carried out before", weir.TakeEach, "good bad", 3, true, 7},
		{"carried out behind", weir.TakeEach, "bad good", 3, true, 7},
		{"debited", weir.DebitEach, "good bad", 13, true, 0},
		{"refused", weir.TakeEach, "good bad", 11, false, 10},
		{"of nothing", weir.DebitEach, "good bad", 0, false, 10},
		{"peeked", weir.PeekEach, "good bad", 1, false, 10},
		{"all fail", weir.DebitEach, "bad bad", 1, false, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			do(t, s, &weir.Batch{Op: weir.ResetEach, Charges: []weir.Charge{{Policy: p, Key: "good"}}})
			b := weir.Batch{Op: c.op}
			for _, key := range strings.Fields(c.keys) {
				b.Charges = append(b.Charges, weir.Charge{Policy: p, Key: key, Cost: c.cost})
			}
			whole, err := s.newCall(context.Background(), &b)
			if err != nil {
				t.Fatal(err)
			}
			whole.until = weir.Now().Add(s.timeout)
			before := s.Stats().Unknown
			err = s.scatter(context.Background(), whole, [][]int{{0}, {1}})
			if err == nil || !strings.Contains(err.Error(), "not a row of weir") || errors.Is(err, weir.ErrUnknown) != c.unknown {
				t.Errorf("got error %v, want that of the bad subcall, unknown: %v", err, c.unknown)
			}
			if counted := s.Stats().Unknown - before; (counted == 1) != c.unknown {
				t.Errorf("%d outcomes were counted as unknown, want %v", counted, c.unknown)
			}
			wantLeft(t, "after a batch of which one subcall failed", s, p, "good", c.left)
		})
	}
}

// An unknown outcome is never hidden behind another subcall's error.
func TestUnknownSubcalls(t *testing.T) {
	s := &Store{}
	refused, unknown := &call{op: opEach, charges: make([]charge, 1), outcomes: make([]outcome, 1)}, unknownOutcome(errTimeout)
	for _, c := range []struct {
		errs    []error
		unknown bool
	}{
		{[]error{nil, nil}, false},
		{[]error{nil, errBusy}, false},
		{[]error{errBusy, errTimeout}, false},
		{[]error{errBusy, unknown}, true},
		{[]error{unknown, errBusy}, true},
		{[]error{nil, unknown}, true},
	} {
		err := s.failure([]*call{refused, refused}, c.errs)
		if errors.Is(err, weir.ErrUnknown) != c.unknown || (err == nil) != (errors.Join(c.errs...) == nil) {
			t.Errorf("%v: got %v, want unknown: %v", c.errs, err, c.unknown)
		}
	}
	if n := s.counts.unknown.Load(); n != 0 {
		t.Errorf("%d outcomes were counted as unknown a second time", n)
	}
}

// A key's partition is the index of its send queue, also before the Store has loaded its
// policy.
func TestPartitions(t *testing.T) {
	p := newPolicy(t, "a:b/c", weir.Limit{Rate: 10, Per: weir.Every(time.Hour)})
	redis := redistest.Start(t)
	one := open(t, Config{Redis: server(redis.Addr()), Timeout: time.Second})
	if one.Partitions() != 1 || one.Partition(p, "k") != 0 || one.Timeout() != time.Second {
		t.Errorf("one server: partition %d of %d, timeout %v", one.Partition(p, "k"), one.Partitions(), one.Timeout())
	}
	many := &Store{cluster: true, prefix: "weir:"}
	for range ClusterPartitions {
		many.queues = append(many.queues, &sendQueue{})
	}
	if many.Partitions() != ClusterPartitions {
		t.Errorf("a cluster: %d partitions, want %d", many.Partitions(), ClusterPartitions)
	}
	seen := map[int]bool{}
	for i := range 2000 {
		key := fmt.Sprint("{k}%", i)
		partition := many.Partition(p, key)
		if many.queues[partition] != many.queueOf(rowKey(many.rowPrefix(p.Name()), key)) {
			t.Fatalf("key %q: partition %d is not that of its send queue", key, partition)
		}
		seen[partition] = true
	}
	if len(seen) != ClusterPartitions {
		t.Errorf("2000 keys are on %d partitions of %d", len(seen), ClusterPartitions)
	}
}
