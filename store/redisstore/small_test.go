package redisstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// ways are those to take from a row: by a Take, and by a batch with another key.
var ways = map[string]func(s *Store, p *weir.Policy) (weir.Decision, error){
	"take": func(s *Store, p *weir.Policy) (weir.Decision, error) { return takeBy(s, false, p) },
	"all":  func(s *Store, p *weir.Policy) (weir.Decision, error) { return takeBy(s, true, p) },
}

// A row that was reset is kept for as long as what is taken afterwards, also if that takes years
// to come back.
func TestTakeAfterReset(t *testing.T) {
	redis := redistest.Start(t)
	for way, take := range ways {
		s := open(t, Config{Redis: server(redis.Addr())})
		p := newPolicy(t, "p", weir.Limit{Rate: 1, Per: weir.Every(365 * 24 * time.Hour)})
		for i := range 2 {
			if d, err := take(s, p); err != nil || !d.Allowed {
				t.Fatalf("%s %d: %s, error %v", way, i, show(d), err)
			}
			if i == 1 {
				break
			}
			b := weir.Batch{Op: weir.ResetEach, Charges: []weir.Charge{{Policy: p, Key: "k"}, {Policy: p, Key: "other"}}}
			if err := s.Do(context.Background(), &b); err != nil {
				t.Fatal(err)
			}
		}
		if ttl := redis.MustDo("PTTL", rowKey(s.rowPrefix("p"), "k")).Text; len(ttl) < len("31536000000") {
			t.Errorf("%s: a unit that takes a year to come back is kept for %s ms", way, ttl)
		}
	}
}

// Sets are followed from what callers ask for: that what is in force now was once replaced itself
// does not matter, whichever script decides, and however old the row is.
func TestSetsAreFollowedOnce(t *testing.T) {
	redis := redistest.Start(t)
	for way, take := range ways {
		s := open(t, Config{Redis: server(redis.Addr()), Now: still})
		hourly := func(rate int64) *weir.Policy {
			return newPolicy(t, "p", weir.Limit{Rate: rate, Per: weir.Every(time.Hour)})
		}
		ten, twenty, fifty := hourly(10), hourly(20), hourly(50)
		want := func(what string, remaining int64) {
			t.Helper()
			if d, err := take(s, ten); err != nil || d.Remaining != remaining || !d.Allowed {
				t.Errorf("%s, %s: %s, error %v; want %d left", way, what, show(d), err, remaining)
			}
		}
		want("before", 9)
		for _, set := range [][2]*weir.Policy{{twenty, fifty}, {ten, twenty}} {
			if err := s.Set(context.Background(), set[0], set[1]); err != nil {
				t.Fatal(err)
			}
		}
		want("an old row", 18)
		if _, err := weir.Reserve(context.Background(), s, time.Minute, weir.Charge{Policy: ten, Key: "k", Cost: 1}); err != nil {
			t.Fatal(err)
		}
		want("with a hold", 16)
	}
}

// Numbers that allow less debt than others of the same rate do not cut what these have left.
func TestDebtOfOtherNumbers(t *testing.T) {
	redis := redistest.Start(t)
	for way, take := range ways {
		s := open(t, Config{Redis: server(redis.Addr()), Now: still})
		l := weir.Limit{Rate: 10, Per: weir.Every(time.Hour), MaxDebt: 1000}
		much := newPolicy(t, "p", l)
		l.MaxDebt = 1
		little, err := much.With(l)
		if err != nil {
			t.Fatal(err)
		}
		debit := weir.Batch{Op: weir.DebitEach, Charges: []weir.Charge{{Policy: much, Key: "k", Cost: 500}}}
		if err := s.Do(context.Background(), &debit); err != nil {
			t.Fatal(err)
		}
		if d, err := take(s, little); !errors.Is(err, weir.ErrInvalid) {
			t.Errorf("%s: %s, error %v", way, show(d), err)
		}
		if d, err := weir.Peek(context.Background(), s, much, "k", 0); err != nil || d.ResetAfter != 50*time.Hour {
			t.Errorf("%s: %s, error %v; want it to take 50 h", way, show(d), err)
		}
	}
}

// A row that is not small costs one script more than others, and no row two; and the next time
// none, as it is known then.
func TestPassedOnOnce(t *testing.T) {
	redis := redistest.Start(t)
	for way, take := range ways {
		s := open(t, Config{Redis: server(redis.Addr())})
		another := open(t, Config{Redis: server(redis.Addr()), Prefix: s.prefix})
		p := newPolicy(t, "p", weir.Limit{Rate: 100, Per: weir.Every(time.Hour)})
		want := func(what string, commands int64) {
			t.Helper()
			before := s.counts.commands.Load()
			if _, err := take(s, p); err != nil {
				t.Fatal(err)
			}
			if got := s.counts.commands.Load() - before; got != commands {
				t.Errorf("%s, %s: %d commands, want %d", way, what, got, commands)
			}
		}
		for _, take := range ways { // the server gets to know the scripts
			if _, err := take(s, p); err != nil {
				t.Fatal(err)
			}
		}
		want("no holds", 1)
		res, err := weir.Reserve(context.Background(), another, time.Minute, weir.Charge{Policy: p, Key: "k", Cost: 1})
		if err != nil {
			t.Fatal(err)
		}
		first := int64(2)
		if way == "all" {
			first = 1 // small.lua knows such rows
		}
		want("a hold that another process has made", first)
		want("a hold that is known", 1)
		if _, err := res.Cancel(context.Background()); err != nil {
			t.Fatal(err)
		}
		want("a hold that was settled", 1)
		if s.held.has(rowKey(s.rowPrefix("p"), "k")) {
			t.Errorf("%s: the row is still taken for one with holds", way)
		}
	}
}
