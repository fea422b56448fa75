package target

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A Target is something that can be called. Its methods are safe for concurrent use.
type Target struct {
	plan   *plan // set by Open, like the next two
	dialer *dialer
	driver driver

	closing sync.Once
}

// A driver knows one protocol.
type driver interface {
	// open makes sure that the target answers, without an operation.
	open(ctx context.Context) error
	// sender returns what one caller sends with.
	sender(v *vars) sender
	// close ends what the driver has besides the dialer's connections.
	close() error
}

// A sender carries out the operations of one caller, one after the other.
type sender interface {
	// send carries out the operation that vars stand at. ctx has a deadline.
	send(ctx context.Context) Result
}

// Open connects to a target, and reports one that does not answer. It sends no
// operation.
func Open(ctx context.Context, c Config) (*Target, error) {
	p, err := compile(c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	t := &Target{plan: p, dialer: newDialer(p)}
	if err := t.open(ctx); err != nil {
		_ = t.Close()
		return nil, fmt.Errorf("target: %v: %w", p.address, err)
	}
	return t, nil
}

func (t *Target) open(ctx context.Context) error {
	var err error
	if t.driver, err = newDriver(t.plan, t.dialer); err != nil {
		return err
	}
	return t.driver.open(ctx)
}

func newDriver(p *plan, d *dialer) (driver, error) {
	switch p.Protocol {
	case GRPC:
		return newGRPC(p, d)
	case RESP:
		return newRESP(p, d), nil
	}
	return newHTTP(p, d), nil
}

// Close ends all connections. Calls that are under way, and later ones, fail with
// the code "closed". To close again does nothing.
func (t *Target) Close() error {
	var err error
	t.closing.Do(func() {
		if t.driver != nil {
			err = t.driver.close()
		}
		t.dialer.close()
	})
	return err
}

// A Caller is the target in the hands of one goroutine. It is not safe for
// concurrent use.
type Caller struct {
	vars    *vars // set by Target.Caller, like the rest
	sender  sender
	timeout time.Duration
}

// Caller returns the caller with a number, {{worker}}.
func (t *Target) Caller(worker int) *Caller {
	v := newVars(t.plan.Seed, worker)
	return &Caller{vars: v, sender: t.driver.sender(v), timeout: t.plan.Timeout}
}

// Call carries out operation seq. Where ctx ends before the target answers, the
// code is "canceled"; such a call says nothing about the target.
func (c *Caller) Call(ctx context.Context, seq int64) Result {
	c.vars.begin(seq)
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r := c.sender.send(limited)
	if r.Err != nil && ended(ctx) {
		r.Code = codeCanceled
	}
	return r
}

// ended says whether ctx has ended, or is about to: its timer may be late, and
// another's with the same deadline not.
func ended(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}
