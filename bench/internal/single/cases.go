package single

import "github.com/weirlimit/weir/bench/internal/harness"

// xTimeRate is the name that most ratios are taken against.
const xTimeRate = "x/time/rate"

// A setting is the limit of a case, the same for every contender.
type setting struct {
	rate    int64 // per second
	burst   int64
	drained bool // start with nothing left
}

var (
	// plenty admits every call of a run, however fast. A limiter slower than
	// 10 ns per call is always full.
	plenty = setting{rate: 100_000_000, burst: 1_000_000_000}

	// spending admits every call too, but out of the burst, so that the
	// limiter is never full.
	spending = setting{rate: 1_000, burst: 1_000_000_000}

	// odd is plenty with a rate that divides no second evenly.
	odd = setting{rate: 99_999_989, burst: 1_000_000_000}
)

// Cases returns the cases, those with goals first.
func Cases() []harness.Case {
	return []harness.Case{
		allow(1, goals{allow: 2.5, take: 2}),
		allow(32, goals{allow: 3, prepaid: 10, take: 3}),
		deny(2, goals{allow: 5.5, take: 3.5}),
		spend(1),
		oddRate(1),
		twoLimits(1),
		dual(1),
		dual(32),
		clock(1),
	}
}

type goals struct{ allow, prepaid, take float64 }

func allow(goroutines int, g goals) harness.Case {
	return harness.Case{
		Name:       "allow, " + harness.Goroutines(goroutines),
		Note:       "100,000,000 per second, burst 1,000,000,000: every call is admitted. uber's limiter cannot refuse; its slack is set to the burst, so that it hardly ever waits.",
		Goroutines: goroutines,
		Expect:     harness.Admit,
		Against:    xTimeRate,
		Contenders: []harness.Contender{
			weirAllow(plenty, g.allow),
			weirTake(plenty, g.take),
			weirPrepaid(plenty, g.prepaid),
			xTime(plenty),
			uber(plenty),
			juju(plenty),
			failsafe(plenty),
			harness.Since(),
		},
	}
}

func deny(goroutines int, g goals) harness.Case {
	none := setting{drained: true}
	return harness.Case{
		Name:       "deny, " + harness.Goroutines(goroutines),
		Note:       "1 per hour, and that one is taken: every call is refused. uber's limiter cannot refuse.",
		Goroutines: goroutines,
		Expect:     harness.Refusal,
		Against:    xTimeRate,
		Contenders: []harness.Contender{
			weirAllow(none, g.allow),
			weirTake(none, g.take),
			xTime(none),
			juju(none),
			failsafe(none),
			harness.Since(),
		},
	}
}

func spend(goroutines int) harness.Case {
	return harness.Case{
		Name:       "allow from the burst, " + harness.Goroutines(goroutines),
		Note:       "1,000 per second, burst 1,000,000,000: every call is admitted, and the limiter is never full, so that a Decision's remaining units have to be computed. uber's limiter would wait.",
		Goroutines: goroutines,
		Expect:     harness.Admit,
		Against:    xTimeRate,
		Contenders: []harness.Contender{
			weirAllow(spending, 0),
			weirTake(spending, 0),
			xTime(spending),
			juju(spending),
			failsafe(spending),
			harness.Since(),
		},
	}
}

func oddRate(goroutines int) harness.Case {
	return harness.Case{
		Name:       "odd rate, " + harness.Goroutines(goroutines),
		Note:       "99,999,989 per second: no whole number of nanoseconds per unit.",
		Goroutines: goroutines,
		Expect:     harness.Admit,
		Against:    xTimeRate,
		Contenders: []harness.Contender{weirAllow(odd, 0), weirTake(odd, 0), xTime(odd), harness.Since()},
	}
}

func twoLimits(goroutines int) harness.Case {
	return harness.Case{
		Name:       "two limits together, " + harness.Goroutines(goroutines),
		Note:       "One per second and one per calendar day, checked together under a mutex. No peer has it.",
		Goroutines: goroutines,
		Expect:     harness.Admit,
		Against:    harness.SinceName,
		Contenders: []harness.Contender{weirTwo(plenty), harness.Since()},
	}
}

func dual(goroutines int) harness.Case {
	return harness.Case{
		Name:       "dual window, mixed, " + harness.Goroutines(goroutines),
		Note:       "32,767 per second and 262,143 per minute, the most there is: a run uses that up at once, so most calls are refused. No peer has it.",
		Goroutines: goroutines,
		Against:    harness.SinceName,
		Contenders: []harness.Contender{weirDual(), harness.Since()},
	}
}

func clock(goroutines int) harness.Case {
	return harness.Case{
		Name:       "clock, " + harness.Goroutines(goroutines),
		Note:       "What it costs to know the time, which nearly every decision needs.",
		Goroutines: goroutines,
		Against:    harness.SinceName,
		Contenders: []harness.Contender{weirNow(), harness.Since(), now()},
	}
}
