package respapi

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
)

// calls counts how often a limiter is called, and fails on request.
type calls struct {
	weir.Limiter
	n    int
	fail error
}

func (c *calls) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	c.n++
	if c.fail != nil {
		return weir.Decision{}, c.fail
	}
	return c.Limiter.Take(ctx, p, key, cost)
}

func (c *calls) Do(ctx context.Context, b *weir.Batch) error {
	c.n++
	if c.fail != nil {
		return c.fail
	}
	return c.Limiter.Do(ctx, b)
}

// batching is a fixture that counts how often its limiter is called.
func batching(t *testing.T) (*fixture, *calls) {
	t.Helper()
	f := newFixture(t)
	store, err := memstore.New(memstore.Config{Now: f.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	count := &calls{Limiter: store}
	f.decideBy(t, count)
	return f, count
}

// What comes together is answered as if it came one after the other.
func TestBatch(t *testing.T) {
	lines := []string{
		"WEIR.CHECK tight a", "WEIR.CHECK tight b 2", "WEIR.CHECK default a 30", "WEIR.CHECK tight a 0", "WEIR.CHECK default b",
		"WEIR.CHECK mixed a BY ip x", "WEIR.CHECK mixed a 1 BY ip x UNIT tokens 300", "WEIR.CHECK tight a 1 BY ip x", "WEIR.CHECK mixed a", "WEIR.CHECK slots a",
		"WEIR.CHECK nothing a", "WEIR.CHECK tight", "WEIR.CHECK tight a -1", "WEIR.CHECK tight a x", "WEIR.PEEK tight a", "PING", "GET a",
		"CL.THROTTLE a 1 1 1", "CLIENT GETNAME", "RESET",
		"WEIR.CHECK jobs a 2 CLASS realtime", "WEIR.CHECK jobs a 2", "WEIR.CHECK jobs a CLASS backfill", "WEIR.CHECK jobs a CLASS urgent", "WEIR.CHECK tight a CLASS realtime",
	}
	rng := rand.New(rand.NewPCG(7, 8))
	for range lighter(2000) {
		var in strings.Builder
		for range rng.IntN(20) {
			i := rng.IntN(len(lines))
			if rng.IntN(2) == 0 {
				i = rng.IntN(5)
			}
			in.WriteString(lines[i] + "\r\n")
		}
		in.WriteString([]string{"", "*x\r\n", "QUIT\r\n", "POST /\r\n"}[rng.IntN(4)] + "PING\r\n")
		one, _ := batching(t)
		all, _ := batching(t)
		want, got := strings.Join(one.play(strings.SplitAfter(in.String(), "\n")...), ""), all.play(in.String())[0]
		if got != want {
			t.Fatalf("%q:\n%q, want\n%q", in.String(), got, want)
		}
		if len(one.records) != len(all.records) {
			t.Fatalf("%q: %d records, want %d", in.String(), len(all.records), len(one.records))
		}
	}
}

func TestBatchCalls(t *testing.T) {
	pipeline := strings.Repeat("WEIR.CHECK default a\r\n", 16)
	f, count := batching(t)
	f.play(pipeline)
	if count.n != 1 || len(f.records) != 16 {
		t.Errorf("%d calls and %d records of 16 checks, want 1 and 16", count.n, len(f.records))
	}
	count.n = 0
	f.play(strings.Repeat(pipeline, 100))
	if count.n > 1600/maxBatch+2 {
		t.Errorf("%d calls for 1600 checks", count.n)
	}
	count.n = 0
	f.play(strings.Repeat("WEIR.CHECK jobs a CLASS realtime\r\nWEIR.CHECK jobs a CLASS backfill\r\nWEIR.CHECK jobs a\r\n", 8))
	if classes := f.classes(24); count.n != 1 || classes != strings.Repeat("realtime backfill backfill ", 8) {
		t.Errorf("%d calls of 24 checks with classes, want 1; charged to %s", count.n, classes)
	}
	count.fail = errors.New("down")
	want := strings.Repeat("-ERR no decision could be made; the daemon's log says why\r\n", 16)
	if got := f.play(pipeline)[0]; got != want {
		t.Errorf("of a limiter that is down: %q", got)
	}
}
