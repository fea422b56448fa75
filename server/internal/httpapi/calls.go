package httpapi

import (
	"bytes"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/weirhttp"
)

// maxBody is the greatest length of a request body.
const maxBody = 64 << 10

// exchange is a request and its response. Its memory is pooled.
type exchange struct {
	r      *http.Request
	header http.Header // of the response
	state  *State
	caller call.Caller

	body    bytes.Buffer
	request request
	batch   batchItems
	out     []byte // the body of the response
}

var exchanges = sync.Pool{New: func() any { return &exchange{out: make([]byte, 0, 256)} }}

// free returns the memory to the pool, which must retain no keys.
func (x *exchange) free() {
	x.r, x.header, x.state, x.caller = nil, nil, nil, call.Caller{}
	x.request = request{}
	x.batch.free()
	exchanges.Put(x)
}

// contentJSON is shared by all responses and must not be modified.
var contentJSON = []string{"application/json"}

// post returns the handler of a call: it authenticates the caller, reads the body by its form, and
// has answer fill in the response.
func (a *api) post(f *form, answer func(*exchange) *call.Error) http.Handler {
	return only(http.MethodPost, func(w http.ResponseWriter, r *http.Request) {
		x := exchanges.Get().(*exchange)
		defer x.free()
		x.r, x.header, x.state, x.out = r, w.Header(), a.State(), x.out[:0]
		err := a.enter(w, x, f)
		if err == nil {
			err = answer(x)
		}
		if err != nil {
			err.Write(w)
			return
		}
		x.header["Content-Type"] = contentJSON
		w.Write(x.out) // an error means that the caller is gone
	})
}

// enter authenticates the caller and reads the body.
func (a *api) enter(w http.ResponseWriter, x *exchange, f *form) (err *call.Error) {
	if x.caller, err = a.Core.HTTP(x.state.State, x.r); err != nil {
		return err
	}
	if err := call.ReadBody(w, x.r, &x.body, maxBody); err != nil {
		return err
	}
	x.request.batch = &x.batch
	if err := x.request.decode(f, x.body.Bytes()); err != nil {
		return call.Invalid("%s", err)
	}
	return nil
}

// check answers POST /v1/check.
func (a *api) check(x *exchange) *call.Error {
	req := &x.request
	v, err := a.Core.Check(x.r.Context(), x.caller, req.policy, &req.query, req.peek)
	if err != nil {
		return err
	}
	x.state.setHeaders(x.header, &v)
	x.out = appendDecision(x.out, &v)
	if req.query.Shadow {
		x.out = appendShadow(x.out, &v)
	}
	x.out = append(x.out, "}\n"...)
	return nil
}

// setHeaders sets the rate limit headers.
func (s *State) setHeaders(h http.Header, v *ruleset.Verdict) {
	if v.Limit < 0 {
		return
	}
	quotas := weirhttp.VariantQuotas(v.Variant)
	weirhttp.SetHeaders(h, quotas, v.Limit, v.Decision)
	if s.Legacy != weirhttp.LegacyOff && quotas.Shows(v.Limit) {
		s.Legacy.Set(h, v.Decision, time.Now())
	}
}

// checkBatch answers POST /v1/check/batch.
func (a *api) checkBatch(x *exchange) *call.Error {
	for i, policy := range x.batch.policies {
		rule, err := x.caller.Rule(policy)
		if err != nil {
			return err.In(i)
		}
		x.batch.items[i].Rule = rule
	}
	kind := call.Each
	if x.request.atomic {
		kind = call.All
	}
	verdicts, err := a.Core.CheckBatch(x.r.Context(), x.caller, kind, x.batch.items, x.batch.verdicts)
	if err != nil {
		return err
	}
	x.batch.verdicts = verdicts
	x.out = append(x.out, `{"decisions":[`...)
	for i := range verdicts {
		pause(i)
		if i > 0 {
			x.out = append(x.out, ',')
		}
		x.out = appendDecision(x.out, &verdicts[i])
		if x.batch.items[i].Query.Shadow {
			x.out = appendShadow(x.out, &verdicts[i])
		}
		x.out = append(x.out, '}')
	}
	x.out = append(x.out, "]}\n"...)
	return nil
}

// pause yields the processor after some checks of a batch, so that short requests on a busy
// machine do not wait for a batch of a thousand.
func pause(check int) {
	if check%64 == 63 {
		runtime.Gosched()
	}
}

// reserve answers POST /v1/reserve. If the request was refused, there is no ticket, and no TTL.
func (a *api) reserve(x *exchange) *call.Error {
	id, ttl := "", call.TTL(x.request.ttl)
	v, ticket, err := a.Core.Reserve(x.r.Context(), x.caller, x.request.policy, &x.request.query, ttl)
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
