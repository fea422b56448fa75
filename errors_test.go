package weir

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/compiled"
)

func asLimitError(err error, target **LimitError) bool { return errors.As(err, target) }

func TestBadLimits(t *testing.T) {
	sec := Every(time.Second)
	cases := []struct {
		name  string
		limit Limit
		field string
		says  string // part of the message: what would fit
	}{
		{"no rate", Limit{Per: sec}, "rate", "between 1 and"},
		{"negative rate", Limit{Rate: -1, Per: sec}, "rate", "between 1 and"},
		{"huge rate", Limit{Rate: math.MaxInt64, Per: sec}, "rate", "between 1 and 9007199254740991"},
		{"too fast", Limit{Rate: 3_000_000_000, Per: sec}, "rate", "at most 2000000000"},
		{"no period", Limit{Rate: 1}, "per", "Every(time.Second)"},
		{"negative period", Limit{Rate: 1, Per: Every(-1)}, "per", "between 1 ns and 40 years"},
		{"long period", Limit{Rate: 1, Per: Every(math.MaxInt64)}, "per", "40 years"},
		{"negative burst", Limit{Rate: 1, Per: sec, Burst: -1}, "burst", "negative"},
		{"slow to refill", Limit{Rate: 1, Per: Every(time.Hour), Burst: 400_000}, "burst", "at most 350640"},
		{"burst of a window", Limit{Rate: 5, Per: sec, Burst: 6, Algorithm: FixedWindow}, "burst", "make it 5"},
		{"calendar GCRA", Limit{Rate: 5, Per: Calendar(Month, nil), Algorithm: GCRA}, "algorithm", "FixedWindow"},
		{"calendar sliding", Limit{Rate: 5, Per: Calendar(Day, nil), Algorithm: SlidingWindow}, "algorithm", "FixedWindow"},
		{"no such unit", Limit{Rate: 5, Per: Calendar(9, nil)}, "per", "day, week, month or year"},
		{"zero unit", Limit{Rate: 5, Per: Calendar(0, nil)}, "per", "day, week, month or year"},
		{"NaN", Limit{Rate: 5, Per: sec, Initial: Filled(math.NaN())}, "initial", "between 0 and 1"},
		{"infinite", Limit{Rate: 5, Per: sec, Initial: Filled(math.Inf(1))}, "initial", "between 0 and 1"},
		{"too full", Limit{Rate: 5, Per: sec, Initial: Filled(1.5)}, "initial", "between 0 and 1"},
		{"long log", Limit{Rate: 1 << 41, Per: sec, Algorithm: SlidingLog}, "rate", "1099511627776"},
		{"short window", Limit{Rate: 1 << 40, Per: Every(time.Microsecond), Algorithm: FixedWindow}, "rate", "at most"},
		{"dual of an hour", Limit{Rate: 5, Per: Every(time.Hour), Algorithm: DualWindow}, "per", "second or per minute"},
		{"dual second", Limit{Rate: 32_768, Per: sec, Algorithm: DualWindow}, "rate", "32767"},
		{"dual minute", Limit{Rate: 262_144, Per: Every(time.Minute), Algorithm: DualWindow}, "rate", "262143"},
		{"slots per second", Limit{Rate: 5, Per: sec, Algorithm: Concurrency}, "per", "leave it out"},
		{"slots half full", Limit{Rate: 5, Initial: Filled(0), Algorithm: Concurrency}, "initial", "leave it out"},
		{"unknown algorithm", Limit{Rate: 5, Per: sec, Algorithm: 99}, "algorithm", "knows"},
		{"negative debt", Limit{Rate: 5, Per: sec, MaxDebt: -1}, "max_debt", "negative"},
		{"window debt", Limit{Rate: 5, Per: sec, MaxDebt: 1, Algorithm: FixedWindow}, "max_debt", "leave it out"},
		{"too much debt", Limit{Rate: 1, Per: Every(time.Hour), MaxDebt: 400_000}, "max_debt", "at most 350639"},
		{"unknown on error", Limit{Rate: 5, Per: sec, OnError: 4}, "on_error", "FailLocal, FailOpen or FailClosed"},
		{"bad name", Limit{Name: "a\nb", Rate: 5, Per: sec}, "name", "letters"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := New(c.limit)
			var e *LimitError
			if !errors.As(err, &e) {
				t.Fatalf("New: %v, want a *LimitError", err)
			}
			if e.Field != c.field || !strings.Contains(e.Problem, c.says) {
				t.Errorf("field %q, problem %q; want %q, …%s…", e.Field, e.Problem, c.field, c.says)
			}
			good := mustNewAt(t, t0, Limit{Rate: 7, Per: sec})
			good.TakeAt(t0, 5)
			if err := good.setAt(t0, c.limit); err == nil {
				t.Error("Set took it")
			}
			if d := good.peekAt(t0, 1); d.Remaining != 2 || d.Limit != 7 {
				t.Errorf("a failed Set changed the limiter: %+v", d)
			}
		})
	}
}

func TestPolicyErrorsAreJoined(t *testing.T) {
	_, err := NewPolicy("api", Limit{Rate: 0, Per: Every(1)}, Limit{Name: "b", Rate: 1}, Limit{Rate: 1, Per: Every(1)})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`limit "main": rate 0`, `limit "b": per none`, `name "main": is taken`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if _, err := NewPolicy("api"); err == nil {
		t.Error("a policy without limits was made")
	}
	if _, err := NewPolicy("", Limit{Rate: 1, Per: Every(1)}); err == nil {
		t.Error("a policy without a name was made")
	}
}

func TestScale(t *testing.T) {
	p, err := NewPolicy("register",
		Limit{Rate: 1, Per: Every(time.Hour), Burst: 4},
		Limit{Name: "window", Rate: 1, Per: Every(time.Hour), Algorithm: FixedWindow},
		Limit{Name: "slots", Rate: 5, Algorithm: Concurrency})
	if err != nil {
		t.Fatal(err)
	}
	half, err := p.Scale(1, 2)
	if err != nil {
		t.Fatal(err)
	}
	got := half.Limits()
	if got[0].Rate != 1 || got[0].Per != Every(2*time.Hour) || got[0].Burst != 4 {
		t.Errorf("half of 1 per hour: %v", got[0])
	}
	if got[1].Rate != 1 || got[2].Rate != 2 {
		t.Errorf("half of a window of 1 and of 5 slots: %v, %v", got[1], got[2])
	}
	for _, bad := range [][2]int64{{0, 1}, {1, 0}, {-1, 2}} {
		if _, err := p.Scale(bad[0], bad[1]); err == nil {
			t.Errorf("scale %v was accepted", bad)
		}
	}
	for _, odd := range [][2]int64{{2_147_483_647, 2_147_483_646}, {999_983, 1_000_003}} {
		q, err := p.Scale(odd[0], odd[1])
		if err != nil {
			t.Fatal(err)
		}
		want := float64(odd[0]) / float64(odd[1]) / float64(time.Hour)
		if l := q.Limits()[0]; math.Abs(float64(l.Rate)/float64(l.Per.every)/want-1) > 1e-6 {
			t.Errorf("scale %v: %v", odd, l)
		}
	}
}

func TestPolicyIdentity(t *testing.T) {
	p, _ := NewPolicy("api", Limit{Rate: 10, Per: Every(time.Second)}, Limit{Name: "daily", Rate: 100, Per: Calendar(Day, nil)})
	if p.LimitName(0) != "api" || p.LimitName(1) != "api.daily" || p.Capacity() != 10 {
		t.Errorf("names %q and %q, capacity %d", p.LimitName(0), p.LimitName(1), p.Capacity())
	}
	q, _ := p.With(Limit{Name: "daily", Rate: 50, Per: Calendar(Day, nil)}, Limit{Name: "new", Rate: 1, Per: Every(1)})
	if q.Name() != "api" || q.Same(p) {
		t.Error("With must keep the name and change the limits")
	}
	if from := q.compiled.Continues(&p.compiled); from[0] != 1 || from[1] != -1 {
		t.Errorf("continues %v, want [1 -1]", from)
	}
	if len(p.compiled.Rules) != 2 || p.compiled.Rules[0].Capacity() != 10 {
		t.Error("rules")
	}
	if _, ok := p.compiled.Rules[1].(*algo.Fixed); !ok {
		t.Error("a calendar limit must be a fixed window")
	}
}

// What a limit does while it cannot be counted is no part of what was counted.
func TestSameCounts(t *testing.T) {
	limit := Limit{Rate: 10, Per: Every(time.Second)}
	policy := func(l Limit) *Policy {
		p, err := NewPolicy("api", l)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p, open, faster := policy(limit), limit, limit
	open.OnError, faster.Rate = FailOpen, 11
	if !p.Same(policy(open)) || policy(open).Limits()[0].OnError != FailOpen {
		t.Error("a policy that fails open counts otherwise, or forgot it")
	}
	if p.Same(policy(faster)) {
		t.Error("a policy with another rate is the same")
	}
}

func TestNames(t *testing.T) {
	for a := Auto; a <= Concurrency; a++ {
		if got, err := parseAlgorithm(a.String()); err != nil || got != a {
			t.Errorf("%v: parsed %v, %v", a, got, err)
		}
	}
	if _, err := parseAlgorithm("leaky"); err == nil || !strings.Contains(err.Error(), "token_bucket") {
		t.Errorf("unknown algorithm: %v", err)
	}
	for o := OnError(0); o <= FailClosed; o++ {
		text, err := o.MarshalText()
		if err != nil || string(text) != o.String() {
			t.Errorf("%v: marshalled %q, %v", o, text, err)
		}
		var got OnError
		if err := got.UnmarshalText(text); err != nil || got != o {
			t.Errorf("%v: parsed %v, %v", o, got, err)
		}
		if _, err := New(Limit{Rate: 5, Per: Every(time.Second), OnError: o}); err != nil {
			t.Errorf("a limit that does %q on an error: %v", o, err)
		}
	}
	if got := OnError(4).String(); got != "on_error(4)" {
		t.Errorf("an unknown OnError is called %q", got)
	}
	if _, err := parseOnError("ajar"); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("unknown OnError: %v", err)
	}
	for r := NotCharged; r <= Blocked; r++ {
		if strings.Contains(r.String(), "(") {
			t.Errorf("reason %d has no name", r)
		}
	}
	texts := map[string]string{
		Limit{Rate: 5, Per: Every(time.Minute)}.String():                                          "5 per 1m0s",
		Limit{Rate: 5, Per: Calendar(Month, nil), Algorithm: FixedWindow}.String():                "5 per month (fixed_window)",
		Limit{Rate: 5, Per: Every(time.Second), Burst: 9}.String():                                "5 per 1s burst 9",
		Limit{Rate: 5, Algorithm: Concurrency}.String():                                           "5 at once",
		Decision{Allowed: true, Reason: Admitted, Remaining: 1, Limit: 2, ResetAfter: 1}.String(): "admitted, 1 of 2 remain, reset after 1ns",
		Decision{Reason: TooCostly, RetryAfter: Never}.Err().Error():                              "weir: refused: too_costly, waiting cannot help",
		Decision{Reason: Exhausted, RetryAfter: time.Second}.Err().Error():                        "weir: refused: exhausted, retry after 1s",
		Decision{Reason: TooLate, RetryAfter: time.Second}.Err().Error():                          "weir: refused: too_late: it would be admitted in 1s, after the deadline",
		Decision{Reason: TooLate, RetryAfter: Never}.Err().Error():                                "weir: refused: too_late, waiting cannot help",
		compiled.CheckKey(strings.Repeat("k", 300)).Error():                                       "weir: key of 300 bytes: at most 256 fit; hash longer ones",
		Filled(0.25).String(): "25%",
	}
	for got, want := range texts {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
