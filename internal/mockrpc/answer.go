package mockrpc

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/weirlimit/weir/internal/jsonrpc"
)

// response is one of JSON-RPC, with either a result or an error.
type response struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *callError      `json:"error,omitempty"`
}

// failure is a response with an error. The id is as the call had it, "" for null.
func failure(id string, err *callError) response {
	return response{Version: "2.0", ID: rawID(id), Error: err}
}

func rawID(id string) json.RawMessage {
	if id == "" {
		return json.RawMessage("null")
	}
	return json.RawMessage(id)
}

// exchange is a request while it is answered.
type exchange struct {
	from    *caller
	calls   []call
	batch   bool
	methods []string
	effect  effect
	now     time.Duration
}

// answer charges and executes the calls of a request, and counts them.
func (p *Provider) answer(from *caller, calls []call, batch bool) answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := &exchange{from: from, calls: calls, batch: batch, now: p.nowLocked()}
	for _, c := range calls {
		x.methods = append(x.methods, c.Method)
	}
	units, bad := p.units(x)
	if bad != nil {
		p.malformed++
		return answer{status: http.StatusBadRequest, json: failure(x.id(), bad)}
	}
	from.requests++
	if x.now < from.account.notBefore {
		from.early++
	}
	x.effect = p.faults.apply(x.now, from, x.methods)
	for _, c := range calls {
		from.counts(c.Method).Received++
	}
	a := p.admitLocked(x, units)
	a.delay = p.config.Latency + x.effect.delay
	if a.retryAfter > 0 {
		until := x.now + time.Duration(seconds(a.retryAfter))*time.Second
		from.account.notBefore = max(from.account.notBefore, until)
	}
	return a
}

// units returns what a request costs, or an error if the account never has as much at once.
func (p *Provider) units(x *exchange) (int64, *callError) {
	costs, err := p.table.Batch(x.methods)
	if err != nil {
		return 0, &callError{Code: jsonrpc.CodeInvalidRequest, Message: err.Error()}
	}
	units := costs[p.unit]
	needed, most := units, x.from.account.capacity()
	if p.partial(x) {
		needed = 0
		for _, name := range x.methods {
			needed = max(needed, p.cost(name))
		}
	}
	if needed > most {
		return 0, &callError{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf("the request costs %d units, and the account has %d at once: send fewer calls in a batch", needed, most)}
	}
	return units, nil
}

// partial reports whether the calls of a request are charged one by one.
func (p *Provider) partial(x *exchange) bool { return p.config.PartialBatches && x.batch }

// admitLocked answers an exchange by its faults, its account's limits, and its methods.
func (p *Provider) admitLocked(x *exchange, units int64) answer {
	end := x.effect.end
	if end != nil && !end.Execute {
		x.refuse(end.class())
		return x.fault(end)
	}
	if p.partial(x) {
		return x.finish(p.partialLocked(x), end)
	}
	if wait := x.from.account.take(x.now, units); wait > 0 {
		x.refuse(classRate)
		return p.rateLimited(x, wait)
	}
	responses := make([]response, len(x.calls))
	for i, c := range x.calls {
		responses[i] = p.executeLocked(x, c, end)
	}
	p.chargeBatch(x, units)
	return x.finish(responses, end)
}

// chargeBatch counts what the batch itself costs, which no member does, with its first call.
func (p *Provider) chargeBatch(x *exchange, units int64) {
	for _, name := range x.methods {
		units -= p.cost(name)
	}
	x.from.counts(x.methods[0]).Units += units
}

func (p *Provider) cost(method string) int64 {
	cost, _ := p.table.Cost(method) // the batch had one
	return cost[p.unit]
}

// partialLocked charges the calls of a batch one by one, and refuses those for which there is no room.
func (p *Provider) partialLocked(x *exchange) []response {
	responses := make([]response, len(x.calls))
	for i, c := range x.calls {
		if x.from.account.take(x.now, p.cost(c.Method)) > 0 {
			x.from.counts(c.Method).refuse(classRate)
			responses[i] = failure(c.ID, p.config.rateLimit().err())
			continue
		}
		responses[i] = p.executeLocked(x, c, x.effect.end)
	}
	return responses
}

// executeLocked executes a call that was charged. Of one whose response is lost it counts a failure.
func (p *Provider) executeLocked(x *exchange, c call, lost *Fault) response {
	counts := x.from.counts(c.Method)
	counts.Units += p.cost(c.Method)
	if lost == nil {
		counts.Served++
	} else {
		counts.refuse(lost.class())
	}
	p.state.now = x.now
	result, err := p.state.execute(p.viewLocked(x), c.Method, c.params)
	if err != nil {
		return failure(c.ID, err)
	}
	if result == nil {
		result = json.RawMessage("null") // an empty interface would be left out
	}
	return response{Version: "2.0", ID: rawID(c.ID), Result: result}
}

// viewLocked returns the chain as an exchange sees it.
func (p *Provider) viewLocked(x *exchange) view {
	c, head := p.config, p.headLocked()
	return view{
		chainID: cmp.Or(x.effect.chainID, c.ChainID), head: head - min(head, x.effect.lag),
		first: c.FirstBlock, began: p.began, step: c.BlockTime,
	}
}

func (p *Provider) rateLimited(x *exchange, wait time.Duration) answer {
	refused := p.config.rateLimit()
	a := answer{status: refused.status, json: failure(x.id(), refused.err())}
	if p.config.RetryAfter {
		a.retryAfter = wait
	}
	return a
}

// id returns the id for an error of the whole request.
func (x *exchange) id() string {
	if x.batch {
		return ""
	}
	return x.calls[0].ID
}

func (x *exchange) refuse(class string) {
	for _, c := range x.calls {
		x.from.counts(c.Method).refuse(class)
	}
}

// finish answers with responses, unless a fault replaces them.
func (x *exchange) finish(responses []response, end *Fault) answer {
	if end != nil {
		return x.fault(end)
	}
	var listed []response
	for i, r := range responses {
		if !x.calls[i].IsNotification {
			listed = append(listed, r)
		}
	}
	switch {
	case len(listed) == 0:
		return answer{status: http.StatusNoContent}
	case x.batch:
		return answer{status: http.StatusOK, json: listed}
	}
	return answer{status: http.StatusOK, json: listed[0]}
}

// fault answers as a fault says.
func (x *exchange) fault(f *Fault) answer {
	switch {
	case f.Reset:
		return answer{reset: true}
	case f.Garbage:
		return answer{status: cmp.Or(f.Status, http.StatusOK), text: `{"jsonrpc":"2.0","id":`}
	case f.Refusal == "":
		return answer{status: f.Status, retryAfter: f.RetryAfter, text: http.StatusText(f.Status) + "\n"}
	}
	refused := refusals[f.Refusal]
	a := answer{status: refused.status, retryAfter: f.RetryAfter, json: failure(x.id(), refused.err())}
	switch {
	case f.InBody:
		responses := make([]response, len(x.calls))
		for i, c := range x.calls {
			responses[i] = failure(c.ID, refused.err())
		}
		a = x.finish(responses, nil)
		a.retryAfter = f.RetryAfter
	case refused.code == 0:
		a.json, a.text = nil, refused.message+"\n"
	}
	return a
}
