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

// combiner puts calls together, as the package comment tells. Exchanges are made by up to most
// goroutines, which begin when there is something to ask and end when there is not, so that
// nothing runs in a Client that nobody uses.
type combiner struct {
	client     *Client
	most       int // set once, like maxWaiting
	maxWaiting int

	mu      sync.Mutex // guards the fields below
	waiting []*ask     // in the order in which they came
	flying  int        // goroutines that make exchanges
	closed  bool
}

// ask is a call of Take on its way to a decision.
type ask struct {
	charge   weir.Charge
	deadline time.Time // of its caller; zero if there is none

	// state says whose the ask is. It is waiting until it leaves with an exchange (aboard)
	// or its caller gives up (left); whoever changes it from waiting decides which. An ask
	// that has left is skipped, and nobody was asked. The caller of one that is aboard may
	// give up, too, but does not know then what comes of it. Of an ask that was given up the
	// exchange keeps the memory; others are used again by their callers.
	state atomic.Uint32

	done     chan struct{} // has room for one: gets it when the fields below are set
	decision weir.Decision
	err      error
}

const (
	waiting uint32 = iota
	aboard
	left
)

var asks = sync.Pool{New: func() any { return &ask{done: make(chan struct{}, 1)} }}

// Take charges cost units to key under p if the daemon says that they fit, and nothing
// otherwise.
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
	a := asks.Get().(*ask)
	a.charge = charge
	a.deadline, _ = ctx.Deadline()
	if err := c.combiner.add(a); err != nil {
		return weir.Decision{}, err
	}
	select {
	case <-a.done:
	case <-ctx.Done():
		if a.state.CompareAndSwap(waiting, left) {
			return weir.Decision{}, ctx.Err()
		}
		return weir.Decision{}, c.unknown(ctx.Err())
	}
	d, err := a.decision, a.err
	a.reuse()
	return d, err
}

func (a *ask) reuse() {
	a.charge, a.err = weir.Charge{}, nil
	a.state.Store(waiting)
	asks.Put(a)
}

func (a *ask) answer(d weir.Decision, err error) {
	a.decision, a.err = d, err
	a.done <- struct{}{}
}

// add has a call wait for an exchange.
func (c *combiner) add(a *ask) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return errClosed
	case len(c.waiting) >= c.maxWaiting:
		return errBusy
	}
	c.waiting = append(c.waiting, a)
	if c.flying < c.most {
		c.flying++
		go c.fly()
	}
	return nil
}

// fly makes exchanges until nobody waits.
func (c *combiner) fly() {
	for {
		list := c.board()
		if len(list) == 0 {
			return
		}
		c.send(list)
	}
}

// board returns the calls that leave with the next exchange. If it returns none, the goroutine
// does not count any more.
func (c *combiner) board() []*ask {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []*ask
	bytes, seen := 0, 0
	for _, a := range c.waiting {
		size := len(a.charge.Key) + perCheck
		if len(list) == maxChecks || bytes+size > maxBytes {
			break
		}
		seen++
		if a.state.CompareAndSwap(waiting, aboard) {
			list, bytes = append(list, a), bytes+size
		}
	}
	c.waiting = slices.Delete(c.waiting, 0, seen)
	if len(list) == 0 {
		c.flying--
	}
	return list
}

// close answers who still waits.
func (c *combiner) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, a := range c.waiting {
		if a.state.CompareAndSwap(waiting, aboard) {
			a.answer(weir.Decision{}, errClosed)
		}
	}
	c.waiting = nil
}

// send asks the daemon for some calls and answers them. A batch with something wrong in it is
// refused whole, and not charged; then it is sent again in parts, until what is wrong is alone.
func (c *combiner) send(list []*ask) {
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

// parts divides calls that were refused together: by policy, because what is wrong is mostly
// wrong with that, and those under one policy in halves. It returns none if each of them would
// get the same answer by itself.
func parts(list []*ask, err error) [][]*ask {
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

func byPolicy(list []*ask) (out [][]*ask) {
	var names []string
	for _, a := range list {
		i := slices.Index(names, a.charge.Policy.Name())
		if i < 0 {
			i = len(names)
			names, out = append(names, a.charge.Policy.Name()), append(out, nil)
		}
		out[i] = append(out[i], a)
	}
	return out
}

// try asks the daemon for some calls. If it returns an error, none of them has been answered.
func (c *combiner) try(list []*ask) error {
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

// lasts returns how long an exchange may last: as long as somebody waits for it.
func (c *combiner) lasts(list []*ask) time.Duration {
	most, now := time.Duration(0), time.Now()
	for _, a := range list {
		if a.deadline.IsZero() {
			return c.client.timeout
		}
		most = max(most, a.deadline.Sub(now))
	}
	return min(most, c.client.timeout)
}
