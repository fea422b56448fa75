package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redisconn"
	"github.com/weirlimit/weir/internal/redistest"
)

// keyParts are names and subjects with everything that means something in a key.
var keyParts = []string{
	"", "a", "b", "a:b", "b:", ":", "::", "a:", "%", "%3A", "%25", "%253A", "{", "}", "{}", "}{", "{a}", "a}b", "%7B", "%7D",
	"\x00", "\r\n", "é", "\xff\xfe", " ", "set:", "set:{a", "epoch", "weir:", strings.Repeat("x", 128),
}

// Different pairs of policy and subject have different keys, each with one tag, which
// is all that decides its slot.
func TestKeysAreApart(t *testing.T) {
	s := &Store{prefix: "weir:"}
	seen := map[string]string{s.epochKey(): "the epoch"}
	for _, name := range keyParts {
		seen[s.setKey(name)] = fmt.Sprintf("the record of %q", name)
	}
	if len(seen) != len(keyParts)+1 {
		t.Errorf("%d names of policies have %d records", len(keyParts), len(seen)-1)
	}
	for _, name := range keyParts {
		for _, subject := range keyParts {
			key, what := rowKey(s.rowPrefix(name), subject), fmt.Sprintf("%q of policy %q", subject, name)
			if other, taken := seen[key]; taken {
				t.Errorf("%s and %s have the same key %q", what, other, key)
			}
			seen[key] = what
			checkKey(t, s, key)
		}
	}
}

func checkKey(t *testing.T, s *Store, key string) {
	t.Helper()
	tag, tagged := strings.CutPrefix(key, s.prefix+"{")
	tag, closed := strings.CutSuffix(tag, "}")
	if !tagged || !closed || tag == "" || strings.ContainsAny(tag, "{}") {
		t.Fatalf("key %q is not the prefix and one tag in braces", key)
	}
	if got, want := redisconn.Slot(key), redisconn.Slot(tag); got != want {
		t.Fatalf("key %q is on slot %d, its tag %q on %d", key, got, tag, want)
	}
}

func FuzzKeys(f *testing.F) {
	for i, part := range keyParts {
		f.Add(part, keyParts[(i+7)%len(keyParts)], keyParts[(i+1)%len(keyParts)], part)
	}
	s := &Store{prefix: "weir:"}
	f.Fuzz(func(t *testing.T, name1, subject1, name2, subject2 string) {
		key1, key2 := rowKey(s.rowPrefix(name1), subject1), rowKey(s.rowPrefix(name2), subject2)
		checkKey(t, s, key1)
		if same := name1 == name2 && subject1 == subject2; (key1 == key2) != same {
			t.Errorf("%q of policy %q has the key %q, %q of policy %q has %q", subject1, name1, key1, subject2, name2, key2)
		}
		if s.setKey(name1) == key2 || s.epochKey() == key2 {
			t.Errorf("%q of policy %q has the key %q, which is that of a record", subject2, name2, key2)
		}
		if (s.setKey(name1) == s.setKey(name2)) != (name1 == name2) {
			t.Errorf("policies %q and %q have the records %q and %q", name1, name2, s.setKey(name1), s.setKey(name2))
		}
	})
}

// allKeys returns every key of a server.
func allKeys(redis *redistest.Server) (keys []string) {
	for cursor := ""; cursor != "0"; {
		r := redis.MustDo("SCAN", max(cursor, "0"), "COUNT", "1000")
		cursor = r.Items[0].Text
		for _, key := range r.Items[1].Items {
			keys = append(keys, key.Text)
		}
	}
	return keys
}

// Whatever is done, nothing in Redis stays for ever or lies outside the prefix.
func TestAllKeysExpire(t *testing.T) {
	redis := redistest.Start(t)
	s := open(t, Config{Redis: server(redis.Addr()), Prefix: "mixed:"})
	ctx := context.Background()
	hour := weir.Every(time.Hour)
	policies := []*weir.Policy{
		newPolicy(t, "gcra", weir.Limit{Rate: 10, Per: hour}),
		newPolicy(t, "classes", weir.Limit{Rate: 10, Per: hour, Classes: weir.ClassesOf(weir.Class{Name: "a", Guaranteed: 6}, weir.Class{Name: "b", Guaranteed: 4})}),
		newPolicy(t, "thirds", weir.Limit{Rate: 3, Per: weir.Every(time.Second)}),
		newPolicy(t, "empty", weir.Limit{Rate: 10, Per: hour, Initial: weir.Filled(0)}),
		newPolicy(t, "fixed", weir.Limit{Rate: 10, Per: hour, Algorithm: weir.FixedWindow}),
		newPolicy(t, "year", weir.Limit{Rate: 10, Per: weir.Calendar(weir.Year, nil)}),
		newPolicy(t, "anchored", weir.Limit{Rate: 10, Per: hour, Algorithm: weir.AnchoredWindow}),
		newPolicy(t, "sliding", weir.Limit{Rate: 10, Per: hour, Algorithm: weir.SlidingWindow}),
		newPolicy(t, "log", weir.Limit{Rate: 10, Per: hour, Algorithm: weir.SlidingLog}),
		newPolicy(t, "two", weir.Limit{Rate: 10, Per: hour}, weir.Limit{Name: "b", Rate: 5, Per: hour, Algorithm: weir.SlidingLog}),
		newPolicy(t, "slots", weir.Limit{Rate: 10, Algorithm: weir.Concurrency}),
	}
	for _, p := range policies {
		for _, key := range []string{"taken", "held", "settled", "overrun", "reset", "peeked", "for ever"} {
			charges := []weir.Charge{{Policy: p, Key: key, Cost: 2}}
			if !p.ReserveOnly() {
				if _, err := s.Take(ctx, p, key, 1); err != nil {
					t.Fatalf("take %s from %s: %v", key, p.Name(), err)
				}
			}
			if key == "taken" {
				continue
			}
			ttl := time.Minute
			if key == "for ever" && p.ReserveOnly() {
				ttl = weir.NoExpiry
			}
			held := do(t, s, &weir.Batch{Op: weir.ReserveAll, Charges: charges, TTL: ttl})
			if key == "overrun" {
				charges[0].Cost = 50
			}
			switch {
			case key == "settled" || key == "overrun":
				do(t, s, &weir.Batch{Op: weir.Settle, Charges: charges, Receipts: held.Receipts})
			case key == "reset":
				do(t, s, &weir.Batch{Op: weir.ResetEach, Charges: charges})
			case key == "peeked":
				do(t, s, &weir.Batch{Op: weir.PeekEach, Charges: charges})
			}
		}
	}
	twice := policies[0].Limits()[0]
	twice.Rate *= 2
	if err := s.Set(ctx, policies[0], newPolicy(t, "gcra", twice)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Take(ctx, policies[0], "taken", 1); err != nil {
		t.Fatal(err)
	}

	keys := allKeys(redis)
	if want := len(policies)*7 - 10; len(keys) < want { // some are never taken, or not at first
		t.Errorf("%d keys after a mixed workload, want about %d", len(keys), want)
	}
	const longest = 401 * 24 * time.Hour // records: 400 days
	for _, key := range keys {
		ttl, err := strconv.ParseInt(redis.MustDo("PTTL", key).Text, 10, 64)
		if err != nil || ttl <= 0 || ttl > longest.Milliseconds() {
			t.Errorf("key %q expires in %d ms (%v), want more than 0 and at most %v", key, ttl, err, longest)
		}
		if !strings.HasPrefix(key, "mixed:") {
			t.Errorf("key %q does not begin with the prefix", key)
		}
	}
}

// What somebody else has put where a row belongs is an error for those who ask for
// that row, and for nobody else. It is left as it is.
func TestForeignValues(t *testing.T) {
	redis := redistest.Start(t)
	for _, p := range twoWays(t) {
		for name, put := range map[string][]string{
			"hash": {"HSET", "field", "value"}, "list": {"RPUSH", "value"}, "text": {"SET", "hello"}, "nothing": {"SET", ""},
			"number": {"SET", "42"}, "13 bytes": {"SET", "0123456789abc"}, "half a row": {"SET", "\xff\x95\x00"}, "34 bytes": {"SET", strings.Repeat("~", 34)}, "12 bytes of 0": {"SET", strings.Repeat("\x00", 12)}, "a mark alone": {"SET", "\xff"},
		} {
			t.Run(p.Name()+" "+name, func(t *testing.T) {
				s := open(t, Config{Redis: server(redis.Addr()), Now: still})
				at := rowKey(s.rowPrefix(p.Name()), "k")
				redis.MustDo(append([]string{put[0], at}, put[1:]...)...)
				was := redis.MustDo("DUMP", at).Text
				charges := []weir.Charge{{Policy: p, Key: "k", Cost: 1}, {Policy: p, Key: "other", Cost: 1}}
				for i, r := range together(t, s, charges...) {
					if i == 0 && (!errors.Is(r.err, weir.ErrState) || errors.Is(r.err, weir.ErrUnknown)) {
						t.Errorf("take from a key with a foreign value: %v, error %v; want ErrState, and not ErrUnknown", r.decision, r.err)
					}
					if i == 1 && (r.err != nil || r.decision.Remaining != 99) {
						t.Errorf("take from another key: %v, error %v; want 99 left", r.decision, r.err)
					}
				}
				for _, op := range []weir.Op{weir.TakeEach, weir.TakeAll, weir.ReserveAll, weir.PeekEach, weir.DebitEach, weir.ResetEach} {
					if err := s.Do(context.Background(), &weir.Batch{Op: op, Charges: charges}); !errors.Is(err, weir.ErrState) || errors.Is(err, weir.ErrUnknown) {
						t.Errorf("%s of a key with a foreign value, and another: error %v; want ErrState, and not ErrUnknown", ops[op], err)
					}
				}
				wantLeft(t, "after batches that failed", s, p, "other", 99)
				if got := redis.MustDo("DUMP", at).Text; got != was {
					t.Errorf("the foreign value has become %q", got)
				}
			})
		}
	}
}
