package httpapi

import (
	"bytes"
	"net/http"
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
	x.r, x.header, x.state, x.caller, x.request = nil, nil, nil, call.Caller{}, request{}
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
	rule, err := x.caller.Rule(req.policy)
	if err != nil {
		return err
	}
	v, err := a.Core.Check(x.r.Context(), x.caller, rule, &req.query, req.peek)
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
	weirhttp.SetHeaders(h, v.Variant.Derived(newQuotas).(weirhttp.Quotas), v.Limit, v.Decision)
	if s.Legacy != weirhttp.LegacyOff {
		s.Legacy.Set(h, v.Decision, time.Now())
	}
}
