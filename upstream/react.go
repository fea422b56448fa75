package upstream

import (
	"slices"
	"time"

	"github.com/weirlimit/weir/budget"
)

func outcomeOf(c budget.RefusalClass) outcome {
	switch c {
	case budget.RateLimited:
		return rateLimited
	case budget.QuotaExhausted:
		return quotaExhausted
	case budget.AccessDenied:
		return accessDenied
	}
	return overloaded
}

// react passes what a try says to whom it is about. It does not end the lease: the response may still be on its way.
func (p *Pool) react(l *lease, out result, took time.Duration) {
	e, now := l.endpoint, time.Now()
	m := e.memory
	if l.isHalf() {
		defer p.lines.wake()
	}
	if out.outcome == notSent {
		m.stats.unsent.Add(1)
		l.settle(false)
	}
	switch out.outcome {
	case cancelled:
		l.settle(!l.unsent())
		m.gate.leave(l.passes[0])
		e.quota.gate.leave(l.passes[1])
		e.group.leave(l.passes[2])
		return
	case succeeded:
		m.measured(took)
		m.answers()
		opened := false
		for i, g := range e.gates() {
			opened = g.succeed(l.passes[i]) || opened
		}
		p.opened(e, opened)
		p.answered(e)
		return
	}
	m.stats.failures[out.outcome].Add(1)
	p.blame(l, out, now)
}

// blame closes the gate of what a failure is about. The others learn nothing from it.
func (p *Pool) blame(l *lease, out result, now time.Time) {
	e, closed := l.endpoint, false
	blamed := 0
	switch out.outcome {
	case rateLimited, quotaExhausted:
		blamed = 1
		cooldown := p.set.Load().config.Cooldown
		var pause time.Duration
		pause, closed = e.quota.gate.close(now, l.passes[1], out.refusal.Pause(), delays{base: cooldown}, out.reason)
		p.tell(e, out.refusal, pause)
	case overloaded:
		blamed = 2
		_, closed = e.group.close(now, l.passes[2], out.refusal.Pause(), delays{}, out.reason)
	case accessDenied:
		closed = p.denied(l, out, now)
		p.tell(e, out.refusal, 0)
	default:
		closed = p.failing(l, out, now)
	}
	for i, g := range e.gates() {
		if i != blamed {
			g.leave(l.passes[i])
		}
	}
	if !closed {
		return
	}
	log := p.set.Load().config.Logger
	log.Warn("upstream: an endpoint is out of use", "pool", p.name, "upstream", e.Alias, "reason", out.reason)
	if d := out.refusal.Pause(); d < out.refusal.Wait {
		log.Warn("upstream: the provider wants a longer pause than is plausible; it will be tried again before", "pool", p.name, "upstream", e.Alias, "wants", out.refusal.Wait, "pause", d)
	}
}

// tell passes a refusal to the endpoint's account, for what else is charged to it: it is counted, and the account
// pauses as long as the gate has been closed, which may be not at all.
func (p *Pool) tell(e *endpoint, r budget.Refusal, pause time.Duration) {
	if e.budget == nil {
		return
	}
	if c, err := e.budget.Controller(""); err == nil {
		if r.Wait = pause; pause == 0 {
			r.Wait = -1
		}
		c.RecordRefusal(r)
	}
}

// answered passes a success to the endpoint's account.
func (p *Pool) answered(e *endpoint) {
	if e.budget == nil {
		return
	}
	if c, err := e.budget.Controller(""); err == nil {
		c.RecordSuccess()
	}
}

// opened notes whether a call has opened gates of an endpoint. It is in use again when the last of them is open.
func (p *Pool) opened(e *endpoint, opened bool) {
	if !opened {
		return
	}
	p.lines.wake()
	for _, g := range e.gates() {
		if g.shut.Load() {
			return
		}
	}
	p.set.Load().config.Logger.Info("upstream: an endpoint is in use again", "pool", p.name, "upstream", e.Alias)
}

// down returns the error of a call that no endpoint can take because of failures, with the reasons.
func (p *Pool) down(c *Call) *DownError {
	e, now := &DownError{Unserved: true}, time.Now()
	for _, each := range p.set.Load().endpoints {
		if !each.takes(c) {
			continue
		}
		e.Unserved = false
		health, reason, cooldown := each.health(now)
		if health != "ok" {
			e.Reasons = append(e.Reasons, each.Alias+": "+reason)
		}
		if wait := time.Duration(cooldown) * time.Millisecond; wait > 0 && (e.RetryAfter == 0 || wait < e.RetryAfter) {
			e.RetryAfter = wait
		}
	}
	slices.Sort(e.Reasons)
	return e
}
