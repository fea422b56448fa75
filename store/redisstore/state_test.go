package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// statePolicies have a limit of each kind of row.
func statePolicies(t testing.TB) []*weir.Policy {
	hour := weir.Every(time.Hour)
	return []*weir.Policy{
		newPolicy(t, "gcra", weir.Limit{Rate: 100, Per: hour}),
		newPolicy(t, "sevenths", weir.Limit{Rate: 7, Per: weir.Every(time.Second), Burst: 100}),
		newPolicy(t, "fixed", weir.Limit{Rate: 100, Per: hour, Algorithm: weir.FixedWindow}),
		newPolicy(t, "month", weir.Limit{Rate: 100, Per: weir.Calendar(weir.Month, nil)}),
		newPolicy(t, "anchored", weir.Limit{Rate: 100, Per: hour, Algorithm: weir.AnchoredWindow}),
		newPolicy(t, "sliding", weir.Limit{Rate: 100, Per: hour, Algorithm: weir.SlidingWindow}),
		newPolicy(t, "log", weir.Limit{Rate: 100, Per: hour, Algorithm: weir.SlidingLog}),
		newPolicy(t, "two", weir.Limit{Rate: 100, Per: hour}, weir.Limit{Name: "slots", Rate: 50, Algorithm: weir.Concurrency}),
	}
}

// tryAll does everything to a key whose value may be anything, and to another one. No error but
// ErrState may come of that, and nothing of the other key's.
func tryAll(t *testing.T, s *Store, p *weir.Policy, value string) {
	t.Helper()
	ctx := context.Background()
	bad, good := weir.Charge{Policy: p, Key: "bad", Cost: 1}, weir.Charge{Policy: p, Key: "good", Cost: 1}
	check := func(what string, err error) {
		t.Helper()
		ended := err != nil && strings.Contains(err.Error(), "attempt to ")
		if ended || err != nil && !errors.Is(err, weir.ErrState) && !errors.Is(err, weir.ErrInvalid) {
			t.Errorf("policy %s, value %q: %s: error %v, want ErrState or none", p.Name(), value, what, err)
		}
	}
	id := weir.Receipt{ID: [16]byte{1}, Units: 1}
	for _, b := range []weir.Batch{
		{Op: weir.PeekEach, Charges: []weir.Charge{bad}},
		{Op: weir.TakeEach, Charges: []weir.Charge{bad, good}},
		{Op: weir.DebitEach, Charges: []weir.Charge{bad}},
		{Op: weir.ReserveAll, Charges: []weir.Charge{bad}},
		{Op: weir.Renew, Charges: []weir.Charge{bad}, Receipts: []weir.Receipt{id}},
		{Op: weir.Settle, Charges: []weir.Charge{bad}, Receipts: []weir.Receipt{id}},
		{Op: weir.ResetEach, Charges: []weir.Charge{bad}},
	} {
		if (b.Op == weir.TakeEach || b.Op == weir.DebitEach) && p.ReserveOnly() {
			continue
		}
		check(ops[b.Op], s.Do(ctx, &b))
	}
	if p.ReserveOnly() {
		return
	}
	for i, r := range together(t, s, bad, good, bad) {
		if i == 1 && r.err != nil {
			t.Errorf("policy %s, value %q: take from another key: error %v", p.Name(), value, r.err)
		}
		check("take", r.err)
	}
}

// Whatever lies where a row belongs, it is an error about that key, or a row. It never ends a
// script, nor is it anybody else's error.
func TestAnyValue(t *testing.T) {
	redis := redistest.Start(t)
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for _, p := range statePolicies(t) {
		s := open(t, Config{Redis: server(redis.Addr()), Now: still})
		for i := range short(150, 3000) {
			value := anyValue(rnd, realRow(t, redis, s, p))
			redis.MustDo("SET", rowKey(s.rowPrefix(p.Name()), "bad"), value)
			if tryAll(t, s, p, value); t.Failed() {
				t.Fatalf("value %d", i)
			}
		}
	}
}

// realRow returns a row with charges and holds, or one without.
func realRow(t *testing.T, redis *redistest.Server, s *Store, p *weir.Policy) string {
	t.Helper()
	key := rowKey(s.rowPrefix(p.Name()), "real")
	if r := redis.MustDo("GET", key); r.Text != "" {
		return r.Text
	}
	for range 3 {
		do(t, s, &weir.Batch{Op: weir.ReserveAll, Charges: []weir.Charge{{Policy: p, Key: "real", Cost: 2}}, TTL: time.Minute})
	}
	return redis.MustDo("GET", key).Text
}

// anyValue draws bytes of lengths that rows have and of others, MessagePack of any shape, and
// rows with some bytes replaced.
func anyValue(rnd *rand.Rand, row string) string {
	b := []byte(row)
	switch rnd.IntN(5) {
	case 0:
		b = make([]byte, []int{0, 1, 11, 12, 13, 33, 34, 35, 100}[rnd.IntN(9)])
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
	case 1:
		return "\xff" + anyPack(rnd, 0)
	case 2: // the shape of a row, with something else in it
		return "\xff\x95" + number(rnd) + number(rnd) + number(rnd) + "\x91" + anyRule(rnd) + anyPack(rnd, 2)
	default:
		for range 1 + rnd.IntN(4) {
			b[rnd.IntN(len(b))] = byte(rnd.Uint32())
		}
		b = b[:len(b)-rnd.IntN(len(b))*rnd.IntN(2)]
	}
	return string(b)
}

func anyRule(rnd *rand.Rand) string {
	n := rnd.IntN(9)
	text := string([]byte{byte(0x90 | n)})
	for i := range n {
		switch i {
		case 0:
			text += "\xa4main"
		case 1:
			text += "\xa1" + string("gfaslcx"[rnd.IntN(7)])
		default:
			text += number(rnd)
		}
	}
	return text
}

// number draws a number in MessagePack, mostly such as a row has.
func number(rnd *rand.Rand) string {
	switch rnd.IntN(6) {
	case 0:
		return "\x00"
	case 1:
		return string([]byte{byte(rnd.IntN(128))})
	case 2:
		return "\xcf" + bytesOf(rnd, 8) // 64 bits
	case 3:
		return "\xcb" + bytesOf(rnd, 8) // a double: not whole, not a number, infinite
	case 4:
		return anyPack(rnd, 2)
	}
	return "\xcf\x00\x06" + bytesOf(rnd, 6) // about now, in µs
}

func bytesOf(rnd *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return string(b)
}

// anyPack draws a value in MessagePack.
func anyPack(rnd *rand.Rand, depth int) string {
	switch n := rnd.IntN(8); {
	case n < 3 && depth < 3:
		size := rnd.IntN(8)
		var b strings.Builder
		b.WriteByte(byte(0x90 | size))
		for range size {
			b.WriteString(anyPack(rnd, depth+1))
		}
		return b.String()
	case n == 3:
		return "\xc0"
	case n == 4:
		return "\xc3"
	case n == 5:
		return fmt.Sprintf("\xa3%03d", rnd.IntN(1000))
	case n == 6:
		return "\x81\xa1k\x01"
	}
	return string([]byte{byte(rnd.IntN(128))})
}

// A record of what was set that cannot be read is an error about that policy alone.
func TestForeignRecords(t *testing.T) {
	redis := redistest.Start(t)
	for name, put := range map[string][]string{
		"text": {"SET", "hello"}, "words": {"RPUSH", "hello"}, "no limits": {"RPUSH", "1 2 {}"}, "no version": {"RPUSH", ""},
		"of a later format": {"RPUSH", `1 2 {"old":[{"name":"main","rate":10,"per":"1h0m0s","algorithm":"leaky"}],"new":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Config{Redis: server(redis.Addr()), Now: still})
			bad, good := twoWays(t)[0], twoWays(t)[1]
			redis.MustDo(append([]string{put[0], s.setKey(bad.Name())}, put[1:]...)...)
			ctx := context.Background()
			if d, err := s.Take(ctx, bad, "k", 1); !errors.Is(err, weir.ErrState) || errors.Is(err, weir.ErrUnknown) {
				t.Errorf("take: %v, error %v; want ErrState", d, err)
			}
			if err := s.Set(ctx, bad, newPolicy(t, bad.Name(), weir.Limit{Rate: 1, Per: weir.Every(time.Hour)})); !errors.Is(err, weir.ErrState) {
				t.Errorf("set: error %v, want ErrState", err)
			}
			if d, err := s.Take(ctx, good, "k", 1); err != nil || !d.Allowed {
				t.Errorf("take under another policy: %v, error %v", d, err)
			}
		})
	}
}
