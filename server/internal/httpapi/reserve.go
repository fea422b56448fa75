package httpapi

import (
	"fmt"

	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
)

// reserve answers POST /v1/reserve. If the request was refused, there is no ticket, and no TTL.
func (a *api) reserve(x *exchange) *call.Error {
	rule, err := x.caller.Rule(x.request.policy)
	if err != nil {
		return err
	}
	id, ttl := "", call.TTL(x.request.ttl)
	v, ticket, err := a.Core.Reserve(x.r.Context(), x.caller, rule, &x.request.query, ttl)
	if err != nil {
		return err
	}
	if ticket != nil {
		id = ticket.String()
	} else {
		ttl = 0
	}
	x.state.setHeaders(x.header, &v)
	x.out = fmt.Appendf(appendDecision(x.out, &v), `,"id":"%s","expires_in_ms":%d}`+"\n", id, ttl.Milliseconds())
	return nil
}

// commit answers POST /v1/commit.
func (a *api) commit(x *exchange) *call.Error { return a.settle(x, x.request.used) }

// cancel answers POST /v1/cancel.
func (a *api) cancel(x *exchange) *call.Error { return a.settle(x, ruleset.Used{None: true}) }

func (a *api) settle(x *exchange, used ruleset.Used) *call.Error {
	settled, err := a.Core.Settle(x.r.Context(), x.caller, x.request.id, used)
	if err != nil {
		return err
	}
	x.out = fmt.Appendf(x.out, `{"refunded":%d,"overrun":%d,"late":%t}`+"\n", settled.Refunded, settled.Overrun, settled.Late)
	return nil
}

// renew answers POST /v1/renew.
func (a *api) renew(x *exchange) *call.Error {
	ttl := call.TTL(x.request.ttl)
	renewed, err := a.Core.Renew(x.r.Context(), x.caller, x.request.id, ttl)
	if err != nil {
		return err
	}
	if !renewed {
		ttl = 0
	}
	x.out = fmt.Appendf(x.out, `{"renewed":%t,"expires_in_ms":%d}`+"\n", renewed, ttl.Milliseconds())
	return nil
}
