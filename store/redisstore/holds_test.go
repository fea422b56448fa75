package redisstore

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// commands returns how often a server executed each command, from scripts and clients.
func commands(redis *redistest.Server) string {
	var list []string
	for _, m := range regexp.MustCompile(`cmdstat_(\w+):calls=(\d+)`).FindAllStringSubmatch(redis.MustDo("INFO", "commandstats").Text, -1) {
		if m[1] != "info" && !strings.HasPrefix(m[1], "config") && !strings.HasPrefix(m[1], "client") && m[1] != "pexpire" {
			list = append(list, m[1]+" "+m[2])
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// What a decision on a key with reservations does does not depend on how many there are: neither
// the commands of a script, nor the size of the row.
func TestHoldsCostTheSame(t *testing.T) {
	redis := redistest.Start(t)
	ctx := context.Background()
	for _, l := range []weir.Limit{
		{Rate: 1_000_000, Per: weir.Every(time.Hour)},
		{Rate: 1_000_000, Per: weir.Every(time.Hour), Algorithm: weir.SlidingWindow},
		{Rate: 1_000_000, Per: weir.Every(time.Hour), Algorithm: weir.Lending, Classes: weir.ClassesOf(
			weir.Class{Name: "a", Guaranteed: 600_000}, weir.Class{Name: "b", Guaranteed: 400_000},
		)},
	} {
		p := newPolicy(t, "p"+l.Algorithm.String(), l)
		l.Rate *= 2
		twice, err := p.With(l)
		if err != nil {
			t.Fatal(err)
		}
		var was map[string]string
		for _, n := range []int{2, 2000} {
			s := openWithHolds(t, redis, p, n)
			got := map[string]string{"row": fmt.Sprint(len(redis.MustDo("GET", rowKey(s.rowPrefix(p.Name()), "k")).Text) < 160)}
			count := func(what string, f func() error) {
				t.Helper()
				redis.MustDo("CONFIG", "RESETSTAT")
				if err := f(); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				got[what] = commands(redis)
			}
			take := func(p *weir.Policy) func() error {
				return func() error {
					_, err := s.Take(ctx, p, "k", 1)
					return err
				}
			}
			var res *weir.Reservation
			_ = take(p)() // the server gets to know the scripts
			count("take", take(p))
			count("other limits", take(twice))
			count("the limits again", take(p))
			count("reserve", func() (err error) {
				res, err = weir.Reserve(ctx, s, time.Minute, weir.Charge{Policy: p, Key: "k", Cost: 2})
				return err
			})
			count("renew", func() error {
				_, err := res.Renew(ctx, time.Hour)
				return err
			})
			count("settle", func() error {
				_, err := res.Commit(ctx, 1)
				return err
			})
			if was == nil {
				was = got
				continue
			}
			for what := range was {
				if got[what] != was[what] {
					t.Errorf("%s: %s of a key with 2 reservations: %s; with %d: %s", l.Algorithm, what, was[what], n, got[what])
				}
			}
		}
	}
}

// A key has 10,000 reservations at most.
func TestMostHolds(t *testing.T) {
	redis := redistest.Start(t)
	p := newPolicy(t, "p", weir.Limit{Rate: 1_000_000, Per: weir.Every(time.Hour)})
	s := openWithHolds(t, redis, p, maxHolds)
	b := do(t, s, &weir.Batch{Op: weir.ReserveAll, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: 1}}})
	if d := b.Decisions[0]; d.Allowed || d.Reason != weir.QueueFull || !d.Held || d.RetryAfter <= 29*time.Minute || d.RetryAfter > 30*time.Minute {
		t.Errorf("one too many: %s", show(d))
	}
	if d, err := s.Take(context.Background(), p, "k", 1); err != nil || !d.Allowed {
		t.Errorf("take: %s, error %v", show(d), err)
	}
}

// Whoever settles again, because he has lost the answer, gets it again until the expiry, and
// nothing is given back twice. The last 1,000 are remembered.
func TestSettledAgain(t *testing.T) {
	redis := redistest.Start(t)
	for _, p := range append(twoWays(t), newPolicy(t, "slots", weir.Limit{Rate: 100, Algorithm: weir.Concurrency})) {
		clock := duelStart
		s := open(t, Config{Redis: server(redis.Addr()), Now: func() weir.Instant { return clock }})
		charge := []weir.Charge{{Policy: p, Key: "k", Cost: 10}}
		held := do(t, s, &weir.Batch{Op: weir.ReserveAll, Charges: charge, TTL: time.Minute})
		settle := func(used int64) weir.Settled {
			t.Helper()
			return do(t, s, &weir.Batch{Op: weir.Settle, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: used}}, Receipts: held.Receipts}).Settled[0]
		}
		first := settle(4)
		left := remaining(t, s, p, "k")
		for i, used := range []int64{4, 0, 50} {
			if got := settle(used); got != first || got.Late {
				t.Errorf("%s: time %d: %+v, want %+v as the first time", p.Name(), i+2, got, first)
			}
		}
		if got := remaining(t, s, p, "k"); got != left {
			t.Errorf("%s: %d are left after settling again, %d before", p.Name(), got, left)
		}
		redis.MustDo("DEL", rowKey(s.rowPrefix(p.Name()), "k")) // as if it was unused, and forgotten
		if got := settle(4); got != first {
			t.Errorf("%s: without a row: %+v, want %+v", p.Name(), got, first)
		}
		clock = held.Receipts[0].Expiry
		if got := settle(4); !got.Late {
			t.Errorf("%s: after the expiry: %+v, want it to be late", p.Name(), got)
		}
	}
}

// A thousand outcomes of a key are remembered, and no more.
func TestMostOutcomes(t *testing.T) {
	redis := redistest.Start(t)
	p := newPolicy(t, "p", weir.Limit{Rate: 1_000_000, Per: weir.Every(time.Hour)})
	s := open(t, Config{Redis: server(redis.Addr()), Now: still})
	for range 6 {
		b := weir.Batch{Op: weir.ReserveAll, TTL: time.Minute}
		for range 200 {
			b.Charges = append(b.Charges, weir.Charge{Policy: p, Key: "k", Cost: 1})
		}
		do(t, s, &b)
		do(t, s, &weir.Batch{Op: weir.Settle, Charges: b.Charges, Receipts: b.Receipts})
	}
	row := rowKey(s.rowPrefix("p"), "k")
	for _, got := range []string{redis.MustDo("ZCARD", expiriesKey(row)).Text, redis.MustDo("HLEN", holdsKey(row)).Text} {
		if got != "1000" {
			t.Errorf("%s outcomes are kept, want 1000", got)
		}
	}
}

// Reservations that earlier versions have written into the row itself are still there.
func TestRowsOfEarlierVersions(t *testing.T) {
	redis := redistest.Start(t)
	clock := duelStart
	s := open(t, Config{Redis: server(redis.Addr()), Now: func() weir.Instant { return clock }})
	for _, p := range twoWays(t) {
		row := rowKey(s.rowPrefix(p.Name()), "k")
		do(t, s, &weir.Batch{Op: weir.DebitEach, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: 60}}})
		id, late := [16]byte{1, 2, 0xff}, [16]byte{3}
		now := int64(clock) / 1000
		redis.MustDo("EVAL", oldRow, "1", row, fmt.Sprintf("%x", id), fmt.Sprintf("%x", late), strconv.FormatInt(now, 10), kinds[p.Limits()[0].Algorithm])
		if d, err := weir.Peek(context.Background(), s, p, "k", 41); err != nil || !d.Held || d.Remaining != 40 {
			t.Errorf("%s: peek: %s, error %v", p.Name(), show(d), err)
		}
		if d, err := s.Take(context.Background(), p, "k", 5); err != nil || d.Remaining != 35 {
			t.Errorf("%s: take: %s, error %v; want 35 left", p.Name(), show(d), err)
		}
		charge := []weir.Charge{{Policy: p, Key: "k", Cost: 15}}
		b := do(t, s, &weir.Batch{Op: weir.Settle, Charges: charge, Receipts: []weir.Receipt{{ID: id}}})
		if want := (weir.Settled{Refunded: 25}); b.Settled[0] != want {
			t.Errorf("%s: settled %+v, want %+v", p.Name(), b.Settled[0], want)
		}
		wantLeft(t, p.Name(), s, p, "k", 60)
		clock = clock.Add(2 * time.Minute)
		b = do(t, s, &weir.Batch{Op: weir.Settle, Charges: charge, Receipts: []weir.Receipt{{ID: late}}})
		if !b.Settled[0].Late {
			t.Errorf("%s: settled after the expiry: %+v", p.Name(), b.Settled[0])
		}
	}
}

// oldRow gives a row two holds in the old format, of 40 and 20 units that were charged to it.
const oldRow = `
local text, now = redis.call('GET', KEYS[1]), tonumber(ARGV[3])
local row
if string.byte(text) == 255 then
	row = cmsgpack.unpack(string.sub(text, 2))
else
	row = {0, 0, now, {{'main', 'g', 1, 36000000, 3600000000, 0, 0, 0}}, {}}
	local high, b, low = struct.unpack('>I4I4I4', text)
	row[2] = low % 4096
	row[4][1][4], row[4][1][5] = b, 2 * b * 100
	row[4][1][7] = 1577836800000000 + high * 1048576 + (low - low % 4096) / 4096
end
row[5] = {{ARGV[2], 20, now + 60000000, now}, {ARGV[1], 40, now + 3600000000, now}}
redis.call('SET', KEYS[1], '\255' .. cmsgpack.pack(row), 'PX', 100000000)`

// What is known of a hold is there as long as the row is: its end may matter long after.
func TestHoldsOutliveTheirExpiry(t *testing.T) {
	redis := redistest.Start(t)
	s := open(t, Config{Redis: server(redis.Addr())})
	p := newPolicy(t, "p", weir.Limit{Rate: 10, Per: weir.Every(time.Hour)})
	do(t, s, &weir.Batch{Op: weir.ReserveAll, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: 5}}, TTL: time.Minute})
	row := rowKey(s.rowPrefix("p"), "k")
	kept := func(key string) time.Duration {
		ms, err := strconv.ParseInt(redis.MustDo("PTTL", key).Text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(ms) * time.Millisecond
	}
	for _, key := range []string{expiriesKey(row), holdsKey(row)} {
		got, of := kept(key), kept(row)
		if got < 31*time.Minute || got < of-time.Second || got > of+5*time.Second {
			t.Errorf("%s is kept for %v, the row for %v; its units need a minute and half an hour", key, got, of)
		}
	}
}
