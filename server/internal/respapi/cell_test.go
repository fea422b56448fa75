package respapi

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/resp"
)

// cell is redis-cell as its documentation describes it, for one key and in exact
// arithmetic. All times are nanoseconds.
type cell struct {
	interval *big.Rat // between units: period / count
	limit    int64
	tat      *big.Rat // when all that was taken will have been paid off
}

func newCell(maxBurst, count, period int64) *cell {
	return &cell{interval: big.NewRat(period*1e9, count), limit: maxBurst + 1, tat: new(big.Rat)}
}

func units(n int64, of *big.Rat) *big.Rat { return new(big.Rat).Mul(new(big.Rat).SetInt64(n), of) }

// throttle returns the five integers.
func (c *cell) throttle(now, quantity int64) [5]int64 {
	at := new(big.Rat).SetInt64(now)
	tat := c.tat
	if tat.Cmp(at) < 0 {
		tat = at
	}
	next := new(big.Rat).Add(tat, units(quantity, c.interval))
	allowAt := new(big.Rat).Sub(next, units(c.limit, c.interval))
	limited, retry := int64(0), int64(-1)
	switch {
	case allowAt.Cmp(at) <= 0:
		tat = next
		if quantity > 0 {
			c.tat = next
		}
	case quantity > c.limit:
		limited = 1
	default:
		limited, retry = 1, seconds(new(big.Rat).Sub(allowAt, at))
	}
	owed := new(big.Rat).Sub(tat, at)
	remaining := new(big.Rat).Quo(new(big.Rat).Sub(units(c.limit, c.interval), owed), c.interval)
	return [5]int64{limited, c.limit, floor(remaining), retry, seconds(owed)}
}

func floor(x *big.Rat) int64 { return new(big.Int).Div(x.Num(), x.Denom()).Int64() }

// seconds rounds nanoseconds up.
func seconds(ns *big.Rat) int64 {
	return -floor(new(big.Rat).Neg(new(big.Rat).Quo(ns, new(big.Rat).SetInt64(1e9))))
}

// newTestThrottler decides in memory.
func newTestThrottler(t *testing.T, c *apitest.Clock) *throttler {
	t.Helper()
	return newThrottler(apitest.Table(t, c.Now))
}

// Random numbers, each on a key of its own, and random quantities, at instants that are
// random or those at which something fits.
func TestThrottleAsRedisCell(t *testing.T) {
	clock := apitest.NewClock()
	throttler := newTestThrottler(t, clock)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range lighter(2_000) {
		maxBurst, count, period := rng.Int64N(1+rng.Int64N(50)), 1+rng.Int64N(1+rng.Int64N(2000)), 1+rng.Int64N(1+rng.Int64N(4000))
		c := newCell(maxBurst, count, period)
		key := string(rune('a'+i%26)) + time.Duration(i).String()
		for range 40 {
			quantity := rng.Int64N(1 + rng.Int64N(maxBurst+3))
			got := five(t, throttler, key, params{maxBurst + 1, count, period}, quantity)
			if want := c.throttle(int64(clock.Now()), quantity); got != want {
				t.Fatalf("max_burst %d, %d per %d s: %d at %v: %v, want %v", maxBurst, count, period, quantity, clock.Now(), got, want)
			}
			clock.Pass(pause(rng, c, got[3]))
		}
	}
}

// pause returns how long the clock stands until the next call.
func pause(rng *rand.Rand, c *cell, retry int64) time.Duration {
	interval, _ := c.interval.Float64()
	switch rng.IntN(4) {
	case 0:
		return 0
	case 1:
		return time.Duration(max(0, retry)) * time.Second
	case 2:
		return time.Duration(rng.Int64N(1 + int64(2*interval)))
	}
	return time.Duration(rng.Int64N(5000)) * time.Millisecond
}

// five returns what CL.THROTTLE would reply.
func five(t *testing.T, throttler *throttler, key string, n params, quantity int64) (out [5]int64) {
	t.Helper()
	d, err := throttleOne(throttler, "", key, n, quantity)
	if err != nil {
		t.Fatal(err)
	}
	b := appendThrottled(nil, n.burst, &d)
	at := 4 // after the array's head
	for i := range out {
		end := at + 1
		for b[end] != '\r' {
			end++
		}
		var ok bool
		if out[i], ok = parseInt(b[at+1 : end]); !ok || b[at] != ':' {
			t.Fatalf("%q is no reply", b)
		}
		at = end + 2
	}
	return out
}

// What becomes of a key when other numbers come: units in use stay in use.
func TestThrottleOtherNumbers(t *testing.T) {
	slow, quick, narrow := params{5, 1, 3600}, params{5, 1, 1}, params{2, 1, 3600}
	for _, tt := range []struct {
		name     string
		n        params
		quantity int64
		want     [5]int64
	}{
		{"5 units of an hour each", slow, 5, [5]int64{0, 5, 0, -1, 5 * 3600}},
		{"now of a second: all are in use", quick, 1, [5]int64{1, 5, 0, 1, 5}},
		{"which has not changed the row", slow, 0, [5]int64{0, 5, 0, -1, 5 * 3600}},
		{"a smaller burst: more than all", narrow, 0, [5]int64{0, 2, 0, -1, 5 * 3600}},
		{"and longer to wait", narrow, 1, [5]int64{1, 2, 0, 4 * 3600, 5 * 3600}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			throttler := newTestThrottler(t, apitest.NewClock())
			first := five(t, throttler, "k", slow, 5)
			if tt.quantity == 5 {
				if first != tt.want {
					t.Errorf("%v, want %v", first, tt.want)
				}
				return
			}
			if tt.n == slow {
				five(t, throttler, "k", quick, 1)
			}
			if got := five(t, throttler, "k", tt.n, tt.quantity); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// A clock that goes back gives nobody anything.
func TestThrottleClockBack(t *testing.T) {
	c := apitest.NewClock()
	table := newTestThrottler(t, c)
	n := params{1, 1, 60}
	five(t, table, "k", n, 1)
	c.Pass(-time.Hour)
	if got, want := five(t, table, "k", n, 1), ([5]int64{1, 1, 0, 60, 60}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// Units in use that other parameters cannot represent are an error, and nothing changes; commands
// that come with such a one are decided.
func TestThrottleUnfit(t *testing.T) {
	f := newFixture(t)
	many := "CL.THROTTLE k 1999999999 2000000000 1"
	f.want(t, many+" 1073741824", "*5\r\n:0\r\n:2000000000\r\n:926258176\r\n:-1\r\n:1")
	unfit := fmt.Sprintf("CL.THROTTLE k 0 1 %d", maxPeriod)
	got := f.play(unfit + "\r\nCL.THROTTLE other 0 1 60\r\n" + unfit + "\r\n")[0]
	if strings.Count(got, "-ERR") != 2 || !strings.Contains(got, "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:60\r\n") {
		t.Errorf("%q", got)
	}
	f.want(t, many+" 0", "*5\r\n:0\r\n:2000000000\r\n:926258176\r\n:-1\r\n:1",
		"CL.THROTTLE "+strings.Repeat("k", weir.MaxKeyBytes+1)+" 1 1 1", "-ERR key of 257 bytes: at most 256 fit; hash longer ones")
}

// No triple of integers, however strange, panics or gives more than it may.
func FuzzThrottle(f *testing.F) {
	f.Add(int64(15), int64(30), int64(60), int64(1))
	f.Add(int64(0), int64(1), int64(1), int64(0))
	f.Add(int64(1<<62), int64(1<<62), int64(1<<62), int64(1<<62))
	f.Fuzz(func(t *testing.T, maxBurst, count, period, quantity int64) {
		fix := newFixture(t)
		args := [][]byte{[]byte("CL.THROTTLE"), []byte("k")}
		for _, n := range []int64{maxBurst, count, period, quantity} {
			args = append(args, resp.AppendInt(nil, n)[1:])
		}
		for i, a := range args[2:] {
			args[i+2] = a[:len(a)-2]
		}
		c := newConn(fix.Server, &script{})
		c.execute(args)
		first := string(c.out)
		if first[0] == '-' {
			return
		}
		if d, err := throttleOne(fix.throttler, "", "k", params{maxBurst + 1, count, period}, 0); err != nil || d.Remaining < 0 || d.Remaining > maxBurst+1 {
			t.Errorf("%d %d %d %d: %q, then %+v, %v", maxBurst, count, period, quantity, first, d, err)
		}
	})
}
