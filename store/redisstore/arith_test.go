package redisstore

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/redistest"
)

// exactArithmetic returns the part of do.lua that has muldiv and what it needs.
func exactArithmetic(t *testing.T) string {
	t.Helper()
	_, text, begins := strings.Cut(doText, "-- Exact arithmetic.")
	text, _, ends := strings.Cut(text, "-- Instants of GCRA are pairs")
	if !begins || !ends {
		t.Fatal("do.lua has no part between the comments \"Exact arithmetic\" and \"Instants of GCRA are pairs\" any more")
	}
	return "local NEVER, floor = 9007199254740991, math.floor\n--" + text
}

// muldiv is exact over all of the range that its comment promises, on the doubles of
// a real server.
func TestMuldivIsExact(t *testing.T) {
	redis := redistest.Start(t)
	script := exactArithmetic(t) + `
local out = {}
for i = 1, #ARGV, 3 do
	local q, rest = muldiv(tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]))
	out[#out + 1] = string.format('%.0f %.0f', q, rest)
end
return out`
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	const perCall = 5000
	for range short(5, 100) {
		cases := make([][3]int64, perCall)
		args := []string{"EVAL", script, "0"}
		for i := range cases {
			cases[i] = drawMuldiv(rnd)
			for _, v := range cases[i] {
				args = append(args, fmt.Sprint(v))
			}
		}
		for i, item := range redis.MustDo(args...).Items {
			c := cases[i]
			q, rest := new(big.Int).QuoRem(new(big.Int).Mul(big.NewInt(c[0]), big.NewInt(c[1])), big.NewInt(c[2]), new(big.Int))
			if want := fmt.Sprint(q, rest); item.Text != want {
				t.Fatalf("seed %d: muldiv(%d, %d, %d): got quotient and remainder %s, want %s", seed, c[0], c[1], c[2], item.Text, want)
			}
		}
	}
}

// drawMuldiv draws x and y below 2^53 and z below 2^51 such that x * y / z is below
// 2^53, with a liking for ends of the range and for quotients that just are, or just
// are not, whole.
func drawMuldiv(rnd *rand.Rand) [3]int64 {
	for {
		x, y, z := drawBits(rnd, 53), drawBits(rnd, 53), max(1, drawBits(rnd, 51))
		if rnd.IntN(2) == 0 { // x * y is q * z and a little more or less
			x = max(1, x)
			near := new(big.Int).Mul(big.NewInt(drawBits(rnd, 53)), big.NewInt(z))
			near.Quo(near, big.NewInt(x)).Add(near, big.NewInt(rnd.Int64N(3)-1))
			if near.Sign() < 0 || near.BitLen() > 53 {
				continue
			}
			y = near.Int64()
		}
		q := new(big.Int).Quo(new(big.Int).Mul(big.NewInt(x), big.NewInt(y)), big.NewInt(z))
		if q.BitLen() <= 53 {
			return [3]int64{x, y, z}
		}
	}
}

// drawBits draws a number of at most so many bits: of any length, or next to a power
// of two.
func drawBits(rnd *rand.Rand, most int) int64 {
	length := rnd.IntN(most + 1)
	if rnd.IntN(3) == 0 {
		length = most
	}
	n := int64(1) << length
	switch rnd.IntN(4) {
	case 0:
		n -= 1 + rnd.Int64N(3)
	case 1:
		n += rnd.Int64N(3)
	default:
		n = rnd.Int64N(n)
	}
	return min(max(n, 0), 1<<most-1)
}

// What Go makes of take.lua's answer is what rational numbers say, for any rate that
// Redis can keep.
func TestSmallLikeRationals(t *testing.T) {
	for range short(10, 100) { // of rapid's 100 cases
		rapid.Check(t, smallLikeRationals)
	}
}

func smallLikeRationals(t *rapid.T) {
	m := drawSmall(t)
	units := rapid.Int64Range(0, m.cap).Draw(t, "units")
	cost := m.small.span(units)
	if got, want := m.rat(cost), m.span(units); got.Cmp(want) != 0 {
		t.Fatalf("%d units at %d per %d µs take %v µs to come back: got %+v = %v", units, m.a, m.b, want, cost, got)
	}
	if got, want := m.rat(m.burst), m.span(m.cap); got.Cmp(want) != 0 {
		t.Fatalf("a burst of %d at %d per %d µs takes %v µs to come back: got %v", m.cap, m.a, m.b, want, got)
	}
	ahead := pair{rapid.Int64Range(0, m.most).Draw(t, "ahead"), rapid.Int64Range(0, m.a-1).Draw(t, "of a")}
	m.checkRefused(t, ahead, units)
	if ahead.w < m.burst.w {
		m.checkAdmitted(t, ahead)
	}
}

// smallCase is a small with random limits.
type smallCase struct {
	*small
	most int64 // µs by which TAT may be ahead
}

func drawSmall(t *rapid.T) smallCase {
	for {
		l := weir.Limit{
			Rate:  rapid.OneOf(rapid.Int64Range(1, 1000), rapid.Int64Range(1, algo.MaxRate)).Draw(t, "rate"),
			Per:   weir.Every(time.Duration(rapid.OneOf(rapid.Int64Range(1, int64(time.Hour)), rapid.Int64Range(1, algo.MaxPer)).Draw(t, "per"))),
			Burst: rapid.OneOf(rapid.Int64Range(1, 1000), rapid.Int64Range(1, algo.MaxRate)).Draw(t, "burst"),
		}
		p, err := weir.NewPolicy("p", l)
		if err != nil {
			continue
		}
		a, b, err := rateTerms(l)
		if err != nil {
			continue
		}
		return smallCase{newSmall(&compiledLimits{policy: p}, p.Limits()[0]), mostUnits(l).span(a, b).w}
	}
}

func (m smallCase) rat(p pair) *big.Rat {
	return new(big.Rat).Add(new(big.Rat).SetInt64(p.w), big.NewRat(p.f, m.a))
}

// span returns how many µs units take to come back.
func (m smallCase) span(units int64) *big.Rat {
	return new(big.Rat).Mul(new(big.Rat).SetInt64(units), big.NewRat(m.b, m.a))
}

// left returns how many units fit behind ahead.
func (m smallCase) left(ahead pair) int64 {
	room := new(big.Rat).Sub(m.span(m.cap), m.rat(ahead))
	if room.Sign() < 0 {
		return 0
	}
	room.Mul(room, big.NewRat(m.a, m.b))
	return new(big.Int).Quo(room.Num(), room.Denom()).Int64()
}

// ceil returns µs as a duration, rounded up.
func ceil(r *big.Rat) time.Duration {
	up := new(big.Int).Add(r.Num(), new(big.Int).Sub(r.Denom(), big.NewInt(1)))
	return time.Duration(up.Div(up, r.Denom()).Int64()) * time.Microsecond
}

func (m smallCase) checkAdmitted(t *rapid.T, ahead pair) {
	want := weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: m.cap, Remaining: m.left(ahead), ResetAfter: ceil(m.rat(ahead))}
	if got := m.admitted(ahead); got != want {
		t.Fatalf("%d per %d µs, burst %d, admitted with TAT %v µs ahead:\n got %s\nwant %s", m.a, m.b, m.cap, m.rat(ahead), show(got), show(want))
	}
}

func (m smallCase) checkRefused(t *rapid.T, ahead pair, units int64) {
	late := new(big.Rat).Sub(new(big.Rat).Add(m.rat(ahead), m.span(units)), m.span(m.cap))
	if late.Sign() > 0 { // else it is not refused
		want := weir.Decision{Reason: weir.Exhausted, Limit: m.cap, Remaining: m.left(ahead), RetryAfter: ceil(late), ResetAfter: ceil(m.rat(ahead))}
		if got := m.refused(ahead, units); got != want {
			t.Fatalf("%d per %d µs, burst %d, %d refused with TAT %v µs ahead:\n got %s\nwant %s", m.a, m.b, m.cap, units, m.rat(ahead), show(got), show(want))
		}
	}
	want := weir.Decision{Reason: weir.TooCostly, Limit: m.cap, Remaining: m.left(ahead), RetryAfter: weir.Never, ResetAfter: ceil(m.rat(ahead))}
	if got := m.refused(ahead, m.cap+1); got != want {
		t.Fatalf("%d per %d µs, burst %d, one more refused with TAT %v µs ahead:\n got %s\nwant %s", m.a, m.b, m.cap, m.rat(ahead), show(got), show(want))
	}
}

// TestLevelsBeyondDoubles: what a class has used may be more parts of the new limit than a double can
// count. The script sees that at once; to correct the quotient step by step would take longer than any
// call may.
func TestLevelsBeyondDoubles(t *testing.T) {
	redis := redistest.Start(t)
	s := open(t, Config{Redis: server(redis.Addr())})
	all := func(rate, burst int64, per time.Duration) *weir.Policy {
		classes := weir.ClassesOf(weir.Class{Name: "all", Guaranteed: rate, Burst: burst})
		return weir.Must(weir.NewPolicy("p", weir.Limit{Rate: rate, Per: weir.Every(per), Burst: burst, Classes: classes}))
	}
	old, new := all(1_000_000, 1<<31-1, time.Second), all(1, 1, 40*365*24*time.Hour)
	if d, err := s.Take(t.Context(), old, "k", 1<<31-1); err != nil || !d.Allowed {
		t.Fatalf("all units: %v, error %v", d, err)
	}
	if err := s.Set(t.Context(), old, new); err != nil {
		t.Fatal(err)
	}
	if d, err := s.Take(t.Context(), new, "k", 1); err != nil || d.Allowed || d.Remaining != 0 {
		t.Errorf("under the new limit: %v, error %v, want a refusal", d, err)
	}
}
