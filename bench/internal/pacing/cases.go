package pacing

import (
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	jujulimit "github.com/juju/ratelimit"
	uberlimit "go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/pacer"
)

// tooFast is a target that no library reaches, so that no caller ever waits.
const tooFast = 100_000_000

// Cases returns what a start costs if it is late.
func Cases() []harness.Case {
	return []harness.Case{late(1, 15), late(32, 25)}
}

// late asks for starts that are all late. atMost is how many nanoseconds one may
// take weir.
func late(goroutines int, atMost float64) harness.Case {
	return harness.Case{
		Name: "always late, " + harness.Goroutines(goroutines),
		Note: "100,000,000 per second, which no library reaches: no caller has to wait, and this is what the call costs. " +
			"weir does not read the clock at each start that is known to be late. " +
			"failsafe-go waits for a timer all the same, if there is a context.",
		Goroutines: goroutines,
		Expect:     harness.Admit,
		Against:    xTimeRate,
		Contenders: []harness.Contender{
			weirLate(atMost),
			xTimeLate(),
			uberLate(),
			jujuLate(),
			failsafeLate(),
			harness.Since(),
		},
	}
}

func weirLate(atMost float64) harness.Contender {
	return harness.Contender{Name: weirName, AtMost: atMost, New: func() (harness.Run, error) {
		p, err := pacer.New(pacer.Config{Rate: tooFast})
		if err != nil {
			return nil, err
		}
		return func(n int) (started int) {
			for range n {
				if _, err := p.Wait(forever); err == nil {
					started++
				}
			}
			return started
		}, nil
	}}
}

func xTimeLate() harness.Contender {
	return harness.Contender{Name: xTimeRate, Kind: harness.Peer, Module: "golang.org/x/time", New: func() (harness.Run, error) {
		l := rate.NewLimiter(tooFast, 1)
		return func(n int) (started int) {
			for range n {
				if l.Wait(forever) == nil {
					started++
				}
			}
			return started
		}, nil
	}}
}

func uberLate() harness.Contender {
	return harness.Contender{Name: "uber without slack", Kind: harness.Peer, Module: "go.uber.org/ratelimit", New: func() (harness.Run, error) {
		l := uberlimit.New(tooFast, uberlimit.WithoutSlack)
		return func(n int) (started int) {
			for range n {
				l.Take()
			}
			return n
		}, nil
	}}
}

func jujuLate() harness.Contender {
	return harness.Contender{Name: "juju", Kind: harness.Peer, Module: "github.com/juju/ratelimit", New: func() (harness.Run, error) {
		l := jujulimit.NewBucketWithRate(tooFast, 1)
		return func(n int) (started int) {
			for range n {
				l.Wait(1)
			}
			return n
		}, nil
	}}
}

func failsafeLate() harness.Contender {
	return harness.Contender{Name: "failsafe-go", Kind: harness.Peer, Module: "github.com/failsafe-go/failsafe-go", New: func() (harness.Run, error) {
		l := ratelimiter.NewSmooth[any](tooFast, time.Second)
		return func(n int) (started int) {
			for range n {
				if l.AcquirePermit(forever) == nil {
					started++
				}
			}
			return started
		}, nil
	}}
}
