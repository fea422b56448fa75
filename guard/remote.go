package guard

import (
	"time"

	"github.com/weirlimit/weir/ruleset"
)

// What a server needs that decides for other programs, which tell it the outcome of their requests later.

// Query returns what was last charged for the request, for observers of decisions. It is valid until p is
// used again.
func (p *Pass) Query() *ruleset.Query { return &p.query }

// Detach returns the ticket of a request whose endpoint counts by outcome, and how long it is valid. Then
// Done settles nothing: whoever has the ticket settles it with what Rules.Outcome returns, in this process or
// another. The ticket is nil if there is nothing to settle.
func (p *Pass) Detach() (*ruleset.Ticket, time.Duration) {
	if p.ticket == nil {
		return nil, 0
	}
	t := p.ticket
	p.ticket = nil
	return t, p.endpoint.timeout
}

// Outcome returns what a request has used whose ticket was detached. Policy is that of the ticket. Cost is
// what the handler has set, or less than 0. If no endpoint has the policy any more, all of the ticket
// counts.
func (r *Rules) Outcome(policy string, failed bool, cost int64) ruleset.Used {
	for _, e := range r.all() {
		if e.name == policy {
			return e.outcome(failed, cost)
		}
	}
	return ruleset.Used{All: true}
}
