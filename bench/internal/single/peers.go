package single

import (
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	jujulimit "github.com/juju/ratelimit"
	uberlimit "go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/weirlimit/weir/bench/internal/harness"
)

func xTime(s setting) harness.Contender {
	return harness.Contender{Name: xTimeRate, Kind: harness.Peer, Module: "golang.org/x/time", New: func() (harness.Run, error) {
		l := rate.NewLimiter(rate.Limit(s.rate), int(s.burst))
		if s.drained {
			l = rate.NewLimiter(rate.Every(time.Hour), 1)
			l.Allow()
		}
		return func(n int) (admitted int) {
			for range n {
				if l.Allow() {
					admitted++
				}
			}
			return admitted
		}, nil
	}}
}

func juju(s setting) harness.Contender {
	return harness.Contender{Name: "juju", Kind: harness.Peer, Module: "github.com/juju/ratelimit", New: func() (harness.Run, error) {
		var l *jujulimit.Bucket
		if s.drained {
			l = jujulimit.NewBucket(time.Hour, 1)
			l.TakeAvailable(1)
		} else {
			l = jujulimit.NewBucketWithRate(float64(s.rate), s.burst)
		}
		return func(n int) (admitted int) {
			for range n {
				if l.TakeAvailable(1) == 1 {
					admitted++
				}
			}
			return admitted
		}, nil
	}}
}

// failsafe uses a bursty limiter: so many permits in each period, all at once if
// wanted. A period that refills the whole burst makes it the same rate and burst
// as all others. Its smooth limiter has no burst.
func failsafe(s setting) harness.Contender {
	return harness.Contender{Name: "failsafe-go", Kind: harness.Peer, Module: "github.com/failsafe-go/failsafe-go", New: func() (harness.Run, error) {
		var l ratelimiter.RateLimiter[any]
		if s.drained {
			l = ratelimiter.NewBursty[any](1, time.Hour)
			l.TryAcquirePermit()
		} else {
			l = ratelimiter.NewBursty[any](uint(s.burst), time.Duration(s.burst/s.rate)*time.Second)
		}
		return func(n int) (admitted int) {
			for range n {
				if l.TryAcquirePermit() {
					admitted++
				}
			}
			return admitted
		}, nil
	}}
}

// uber waits instead of refusing, so every call is admitted. The slack is its
// burst.
func uber(s setting) harness.Contender {
	return harness.Contender{Name: "uber", Kind: harness.Peer, Module: "go.uber.org/ratelimit", New: func() (harness.Run, error) {
		l := uberlimit.New(int(s.rate), uberlimit.WithSlack(int(s.burst)))
		l.Take() // the first call starts the schedule, the others run behind it
		return func(n int) (admitted int) {
			for range n {
				l.Take()
			}
			return n
		}, nil
	}}
}

var base = time.Now()

func now() harness.Contender {
	return harness.Contender{Name: "time.Now", Kind: harness.Floor, New: func() (harness.Run, error) {
		return func(n int) (later int) {
			for range n {
				if time.Now().After(base) {
					later++
				}
			}
			return later
		}, nil
	}}
}
