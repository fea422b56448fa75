package upstream

import "time"

// Resume lets an endpoint be tried again that is out of use, whatever the reason: it, its account and its provider get one
// call at a time, and one more after each success. What still refuses or fails is out of use again. An endpoint that
// is on another chain, or behind, is probed first. Resume returns false if no endpoint has the alias.
func (p *Pool) Resume(alias string) bool {
	e := p.set.Load().find(alias)
	if e == nil {
		return false
	}
	if e.budget != nil {
		e.budget.EndCooldown()
	}
	e.quota.gate.resume()
	e.group.resume()
	if !e.memory.wrong.Load() {
		e.memory.gate.resume()
	}
	e.memory.asked.Store(0)
	p.probeNow()
	p.lines.wake()
	return true
}

// ResumeBudget does as much for the account of a name alone. There may be no endpoint that it pays for.
func (p *Pool) ResumeBudget(name string) {
	for _, e := range p.set.Load().endpoints {
		if e.budget == nil || e.Budget != name {
			continue
		}
		e.budget.EndCooldown()
		e.quota.gate.resume()
		p.lines.wake()
		return
	}
}

// resume makes a gate half open that is closed.
func (g *gate) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until, g.forever = time.Time{}, false
	g.backoff.Success()
}
