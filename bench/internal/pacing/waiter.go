package pacing

import (
	"context"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	jujulimit "github.com/juju/ratelimit"
	uberlimit "go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/pacer"
)

// A waiter is a library's way to wait for the next start.
type waiter struct {
	name   string // as in harness.Subject, like the next two
	kind   harness.Kind
	module string

	// open makes a limiter of so many starts per second that begins now, and
	// returns a function that waits. Any number of goroutines may call it.
	open func(perSecond int) (wait func() error, err error)
}

// subject makes a waiter one that answers a survey.
func (w waiter) subject(ask func(waiter) ([]float64, error)) harness.Subject {
	return harness.Subject{
		Name: w.name, Kind: w.kind, Module: w.module,
		Ask: func(func(string)) ([]float64, error) { return ask(w) },
	}
}

const (
	weirName  = "weir Pacer.Wait"
	xTimeRate = "x/time/rate"
)

// forever never ends. Who takes a context gets this one.
var forever = context.Background()

// weirPacer has the mode Average and its defaults, but for smooth.
func weirPacer(name string, smooth bool) waiter {
	return waiter{name: name, open: func(perSecond int) (func() error, error) {
		p, err := pacer.New(pacer.Config{Rate: float64(perSecond), Smooth: smooth})
		if err != nil {
			return nil, err
		}
		return func() error { _, err := p.Wait(forever); return err }, nil
	}}
}

// peers returns the others. They have the least burst that they offer, which is
// what keeps starts apart; uber, whose burst is called slack, has its default too.
func peers() []waiter {
	return []waiter{
		xTime(),
		uber("uber without slack", uberlimit.WithoutSlack),
		uber("uber"),
		juju(),
		failsafe(),
	}
}

func xTime() waiter {
	return waiter{xTimeRate, harness.Peer, "golang.org/x/time", func(perSecond int) (func() error, error) {
		l := rate.NewLimiter(rate.Limit(perSecond), 1)
		return func() error { return l.Wait(forever) }, nil
	}}
}

func uber(name string, opts ...uberlimit.Option) waiter {
	return waiter{name, harness.Peer, "go.uber.org/ratelimit", func(perSecond int) (func() error, error) {
		l := uberlimit.New(perSecond, opts...)
		return func() error { l.Take(); return nil }, nil
	}}
}

func juju() waiter {
	return waiter{"juju", harness.Peer, "github.com/juju/ratelimit", func(perSecond int) (func() error, error) {
		l := jujulimit.NewBucketWithRate(float64(perSecond), 1)
		return func() error { l.Wait(1); return nil }, nil
	}}
}

func failsafe() waiter {
	return waiter{"failsafe-go", harness.Peer, "github.com/failsafe-go/failsafe-go", func(perSecond int) (func() error, error) {
		l := ratelimiter.NewSmooth[any](uint(perSecond), time.Second)
		return func() error { return l.AcquirePermit(forever) }, nil
	}}
}
