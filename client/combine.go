package client

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// combiner batches calls of Take, as the package comment describes. Up to most goroutines make the
// exchanges. They start when calls wait and end when none does, so an idle Client has no
// goroutines.
type combiner struct {
	client     *Client
	most       int // set once, like maxWaiting
	maxWaiting int

	mu      sync.Mutex  // guards the fields below
	waiting []*takeCall // in order of arrival
	senders int         // goroutines that make exchanges
	closed  bool
}

// takeCall is a pending call of Take.
type takeCall struct {
	charge   weir.Charge
	deadline time.Time // of its caller; zero if there is none

	// state is waiting until an exchange takes the call (inFlight) or its caller's context ends
	// (canceled); the first compare-and-swap from waiting decides. A canceled call is not
	// sent. The caller of a call in flight may return, too, when its context ends, but then
	// the outcome is unknown. Callers put a takeCall back into the pool only after its
	// decision; otherwise the exchange may still refer to it.
	state atomic.Uint32

	done     chan struct{} // buffered: receives one value when the fields below are set
	decision weir.Decision
	err      error
}

const (
	waiting uint32 = iota
	inFlight
	canceled
)

var takeCalls = sync.Pool{New: func() any { return &takeCall{done: make(chan struct{}, 1)} }}

// Take charges cost units to key under p if the daemon admits them, and nothing otherwise.
func (c *Client) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	charge := weir.Charge{Policy: p, Key: key, Cost: cost}
	if err := check(&charge); err != nil {
		return weir.Decision{}, err
	}
	if p.ReserveOnly() {
		return weir.Decision{}, weir.ErrReserveOnly
	}
	if err := ctx.Err(); err != nil {
		return weir.Decision{}, err
	}
	charge.Key = strings.Clone(key) // the exchange may outlive this call
	a := takeCalls.Get().(*takeCall)
	a.charge = charge
	a.deadline, _ = ctx.Deadline()
	if err := c.combiner.add(a); err != nil {
		return weir.Decision{}, err
	}
	select {
	case <-a.done:
	case <-ctx.Done():
		if a.state.CompareAndSwap(waiting, canceled) {
			return weir.Decision{}, ctx.Err()
		}
		return weir.Decision{}, c.unknown(ctx.Err())
	}
	d, err := a.decision, a.err
	a.reuse()
	return d, err
}

func (a *takeCall) reuse() {
	a.charge, a.err = weir.Charge{}, nil
	a.state.Store(waiting)
	takeCalls.Put(a)
}

func (a *takeCall) answer(d weir.Decision, err error) {
	a.decision, a.err = d, err
	a.done <- struct{}{}
}

// add adds a call to the queue.
func (c *combiner) add(a *takeCall) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return errClosed
	case len(c.waiting) >= c.maxWaiting:
		return errBusy
	}
	c.waiting = append(c.waiting, a)
	if c.senders < c.most {
		c.senders++
		go c.run()
	}
	return nil
}

// run makes exchanges until no call waits.
func (c *combiner) run() {
	for {
		list := c.next()
		if len(list) == 0 {
			return
		}
		c.send(list)
	}
}

// next returns the calls of the next exchange. If there are none, it decrements senders, and the
// goroutine must end.
func (c *combiner) next() []*takeCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []*takeCall
	bytes, seen := 0, 0
	for _, a := range c.waiting {
		size := len(a.charge.Key) + perCheck
		if len(list) == maxChecks || bytes+size > maxBytes {
			break
		}
		seen++
		if a.state.CompareAndSwap(waiting, inFlight) {
			list, bytes = append(list, a), bytes+size
		}
	}
	c.waiting = slices.Delete(c.waiting, 0, seen)
	if len(list) == 0 {
		c.senders--
	}
	return list
}

// close fails the calls that still wait.
func (c *combiner) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, a := range c.waiting {
		if a.state.CompareAndSwap(waiting, inFlight) {
			a.answer(weir.Decision{}, errClosed)
		}
	}
	c.waiting = nil
}

// send has the daemon decide some calls, and answers them. The daemon refuses an invalid batch as a
// whole, without charging; then send divides it, until the invalid calls are separate.
func (c *combiner) send(list []*takeCall) {
	err := c.try(list)
	if err == nil {
		return
	}
	smaller := parts(list, err)
	if len(smaller) == 0 {
		for _, a := range list {
			a.answer(weir.Decision{}, err)
		}
	}
	for _, part := range smaller {
		c.send(part)
	}
}

// parts divides calls that were refused together: by policy and class, because usually these are the
// problem, and calls under one policy and class in halves. It returns none if each call would get the same
// answer by itself.
func parts(list []*takeCall, err error) [][]*takeCall {
	refused, ok := err.(*AnswerError)
	if !ok || refused.caller || len(list) == 1 {
		return nil
	}
	if groups := byPolicy(list); len(groups) > 1 {
		return groups
	}
	if refused.Missing || refused.Access {
		return nil
	}
	return slices.Collect(slices.Chunk(list, (len(list)+1)/2))
}

func byPolicy(list []*takeCall) (out [][]*takeCall) {
	places := map[[2]string]int{} // by policy and class
	for _, a := range list {
		name := [2]string{a.charge.Policy.Name(), a.charge.Policy.ClassName()}
		i, ok := places[name]
		if !ok {
			i = len(out)
			places[name], out = i, append(out, nil)
		}
		out[i] = append(out[i], a)
	}
	return out
}

// try sends some calls in one exchange. If it returns an error, none of them has been answered.
func (c *combiner) try(list []*takeCall) error {
	batch := newColumns(len(list))
	for _, a := range list {
		batch.add(a.charge.Policy, a.charge.Key, a.charge.Cost)
	}
	answer, err := exchange(c.client.ctx, c.client, c.lasts(list), c.client.service.CheckBatch, batch.req)
	if err != nil {
		return err
	}
	if err := checkColumns(answer, len(list)); err != nil {
		return c.client.unknown(err)
	}
	for i, a := range list {
		a.answer(decision(a.charge.Policy, answer, i), nil)
	}
	return nil
}

// lasts returns the timeout of an exchange: until the last deadline of its callers, and at most the
// Client's timeout.
func (c *combiner) lasts(list []*takeCall) time.Duration {
	most, now := time.Duration(0), time.Now()
	for _, a := range list {
		if a.deadline.IsZero() {
			return c.client.timeout
		}
		most = max(most, a.deadline.Sub(now))
	}
	return min(most, c.client.timeout)
}
