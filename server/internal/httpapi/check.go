package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/weirhttp"
)

// maxBody is the greatest length of a request body.
const maxBody = 64 << 10

// scratch is the pooled memory of one request.
type scratch struct {
	body    bytes.Buffer
	out     []byte
	request request
	batch   batchItems
}

var scratches = sync.Pool{New: func() any { return &scratch{out: make([]byte, 0, 256)} }}

func (s *scratch) free() {
	s.request = request{} // so that the pool retains no keys
	s.batch.free()
	scratches.Put(s)
}

// check answers POST /v1/check.
func (a *api) check(w http.ResponseWriter, r *http.Request) {
	state := a.state()
	s := scratches.Get().(*scratch)
	defer s.free()
	caller, rule, err := a.begin(w, r, state, s, &checkForm)
	if err != nil {
		writeError(w, err)
		return
	}
	req := &s.request
	v, err := a.core.Check(r.Context(), caller, rule, &req.query, req.peek)
	if err != nil {
		writeError(w, err)
		return
	}
	state.setHeaders(w.Header(), &v)
	s.out = appendDecision(s.out[:0], &v)
	if req.query.Shadow {
		s.out = appendShadow(s.out, &v)
	}
	s.out = append(s.out, "}\n"...)
	writeJSON(w, s.out)
}

// begin authenticates the caller, reads the body, and finds the policy that it names.
func (a *api) begin(w http.ResponseWriter, r *http.Request, state *State, s *scratch, f *form) (call.Caller, *ruleset.Rule, *call.Error) {
	caller, err := a.enter(w, r, state, s, f)
	if err != nil {
		return caller, nil, err
	}
	rule, err := caller.Rule(s.request.policy)
	return caller, rule, err
}

// enter authenticates the caller and reads the body.
func (a *api) enter(w http.ResponseWriter, r *http.Request, state *State, s *scratch, f *form) (call.Caller, *call.Error) {
	caller, err := a.core.HTTP(state.State, r)
	if err != nil {
		return caller, err
	}
	return caller, s.read(w, r, f)
}

// contentJSON is shared by all responses and must not be modified.
var contentJSON = []string{"application/json"}

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

// read fills the request with the body.
func (s *scratch) read(w http.ResponseWriter, r *http.Request, f *form) *call.Error {
	if err := readBody(w, r, &s.body); err != nil {
		return err
	}
	s.request.batch = &s.batch
	if err := s.request.decode(f, s.body.Bytes()); err != nil {
		return call.Invalid("%s", err)
	}
	return nil
}

// readBody fills body.
func readBody(w http.ResponseWriter, r *http.Request, body *bytes.Buffer) *call.Error {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return &call.Error{Kind: call.BadEncoding, Problem: "bodies are taken as they are; leave Content-Encoding out", Item: call.NoItem}
	}
	from := r.Body
	if r.ContentLength < 0 || r.ContentLength > maxBody { // otherwise net/http limits the body
		from = http.MaxBytesReader(w, r.Body, maxBody)
	}
	body.Reset()
	_, err := body.ReadFrom(from)
	if err == nil {
		return nil
	}
	switch _, tooLong := errors.AsType[*http.MaxBytesError](err); {
	case tooLong:
		return &call.Error{Kind: call.TooLong, Problem: fmt.Sprintf("a body may have %d bytes", maxBody), Item: call.NoItem}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &call.Error{Kind: call.Slow, Problem: "the body took too long to come", Item: call.NoItem}
	}
	return call.Invalid("the body ended early")
}

// writeError answers a call without a decision.
func writeError(w http.ResponseWriter, err *call.Error) {
	if err.Refusal != nil {
		err.Refusal.Write(w)
		return
	}
	writeProblem(w, err.Status(), err.Error())
}
