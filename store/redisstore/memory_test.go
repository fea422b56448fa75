package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// A key of 27 bytes under one GCRA limit costs Redis 150 bytes at most, its own and
// the expiry included, if a unit takes a whole number of µs. Of them 17 are places in
// Redis's tables; just after these have doubled, it is twice that.
func TestMemory(t *testing.T) {
	keys := short(125_000, 1_000_000) // both fill Redis's tables, which have 2^n places, to 95 %
	for _, c := range []struct {
		bytes int
		rate  int64 // per hour
		most  float64
	}{
		{27, 10, 150}, {45, 10, 0}, {27, 7, 0},
	} {
		redis := redistest.Start(t)
		s := open(t, Config{Redis: server(redis.Addr()), Prefix: "weir:", Timeout: time.Minute})
		p := newPolicy(t, "p", weir.Limit{Rate: c.rate, Per: weir.Every(time.Hour)})
		if d, err := s.Take(context.Background(), p, "first", 1); err != nil || !d.Allowed {
			t.Fatalf("take: %v, error %v", d, err)
		}
		before := redis.UsedMemory()
		last := copyRow(t, redis, s.rowPrefix(p.Name()), "first", keys, c.bytes)
		wantLeft(t, "a row that was copied", s, p, last, c.rate-1)
		if got := redis.MustDo("DBSIZE").Text; got != fmt.Sprint(keys+2) { // first, epoch
			t.Fatalf("Redis has %s keys, want %d", got, keys+2)
		}
		each := float64(redis.UsedMemory()-before) / float64(keys)
		t.Logf("%d keys of %d bytes, %d per hour: %.1f bytes each", keys, c.bytes, c.rate, each)
		if c.most > 0 && each > c.most {
			t.Errorf("%d keys of %d bytes, %d per hour: %.1f bytes each, want %.0f at most", keys, c.bytes, c.rate, each, c.most)
		}
	}
}

// copyRow gives so many other subjects the row of one, such that their keys have so many
// bytes, and returns the last subject. To take from each would need a minute.
func copyRow(t *testing.T, redis *redistest.Server, prefix, subject string, keys, bytes int) (last string) {
	t.Helper()
	const script = `
local row, ttl = redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])
for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do redis.call('SET', string.format(ARGV[3], i), row, 'PX', ttl) end`
	digits := bytes - len(prefix) - len("}")
	format := fmt.Sprintf("%s%%0%dd}", prefix, digits)
	const each = 10_000
	for from := 1; from <= keys; from += each {
		to := min(from+each-1, keys)
		redis.MustDo("EVAL", script, "1", rowKey(prefix, subject), fmt.Sprint(from), fmt.Sprint(to), format)
	}
	last = fmt.Sprintf("%0*d", digits, keys)
	if key := rowKey(prefix, last); len(key) != bytes {
		t.Fatalf("key %q has %d bytes, want %d", key, len(key), bytes)
	}
	return last
}
