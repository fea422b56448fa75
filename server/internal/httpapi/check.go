package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/ruleset"
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
	record  ruleset.Record
}

var scratches = sync.Pool{New: func() any { return &scratch{out: make([]byte, 0, 256)} }}

func (s *scratch) free() {
	s.request, s.record = request{}, ruleset.Record{} // so that the pool retains no keys
	s.batch.free()
	scratches.Put(s)
}

// check answers POST /v1/check.
func (a *api) check(w http.ResponseWriter, r *http.Request) {
	state := a.state()
	client, ok := caller(w, r, state)
	if !ok {
		return
	}
	s := scratches.Get().(*scratch)
	defer s.free()
	req := &s.request
	if !s.read(w, r, &checkForm) {
		return
	}
	rule := state.rule(w, client, req.policy)
	if rule == nil {
		return
	}
	req.query.Client = nameOf(client)
	v, took, err := a.decide(r, rule, req)
	if err != nil {
		a.writeUndecided(w, r, rule.Name(), err)
		return
	}
	a.tell(s, &req.query, req.peek, &v, took)
	state.setHeaders(w.Header(), &v)
	s.out = append(appendDecision(s.out[:0], &v), "}\n"...)
	writeJSON(w, s.out)
}

// contentJSON is shared by all responses and must not be modified.
var contentJSON = []string{"application/json"}

// decide has the engine decide a request.
func (a *api) decide(r *http.Request, rule *ruleset.Rule, req *request) (v ruleset.Verdict, took time.Duration, err error) {
	began := time.Now()
	if req.peek {
		v, err = a.engine.Peek(r.Context(), rule, &req.query)
	} else {
		v, err = a.engine.Check(r.Context(), rule, &req.query)
	}
	return v, time.Since(began) - v.Waited, err
}

// tell reports a decision to the observer.
func (a *api) tell(s *scratch, q *ruleset.Query, peek bool, v *ruleset.Verdict, took time.Duration) {
	s.record = ruleset.Record{Verdict: *v, Key: q.Key, Cost: q.Cost, Client: q.Client, Peek: peek, Took: took}
	a.observe(&s.record)
}

// setHeaders sets the rate limit headers.
func (s *State) setHeaders(h http.Header, v *ruleset.Verdict) {
	if v.Limit < 0 {
		return
	}
	weirhttp.SetHeaders(h, s.Quotas[v.Variant.ID()], v.Limit, v.Decision)
	if s.Legacy != weirhttp.LegacyOff {
		s.Legacy.Set(h, v.Decision, time.Now())
	}
}

// read fills the request with the body, or answers with a problem and returns false.
func (s *scratch) read(w http.ResponseWriter, r *http.Request, f *form) bool {
	if !readBody(w, r, &s.body) {
		return false
	}
	s.request.batch = &s.batch
	if err := s.request.decode(f, s.body.Bytes()); err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return false
	}
	return true
}

// readBody fills body, or answers with a problem and returns false.
func readBody(w http.ResponseWriter, r *http.Request, body *bytes.Buffer) bool {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		writeProblem(w, http.StatusUnsupportedMediaType, "bodies are taken as they are; leave Content-Encoding out")
		return false
	}
	from := r.Body
	if r.ContentLength < 0 || r.ContentLength > maxBody { // otherwise net/http limits the body
		from = http.MaxBytesReader(w, r.Body, maxBody)
	}
	body.Reset()
	_, err := body.ReadFrom(from)
	if err == nil {
		return true
	}
	switch _, tooLong := errors.AsType[*http.MaxBytesError](err); {
	case tooLong:
		writeProblem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("a body may have %d bytes", maxBody))
	case errors.Is(err, os.ErrDeadlineExceeded):
		writeProblem(w, http.StatusRequestTimeout, "the body took too long to come")
	default:
		writeProblem(w, http.StatusBadRequest, "the body ended early")
	}
	return false
}

// writeUndecided answers when no decision was made.
func (a *api) writeUndecided(w http.ResponseWriter, r *http.Request, policy string, err error) {
	if problem, ok := inputProblem(policy, err); ok {
		writeProblem(w, http.StatusBadRequest, problem)
		return
	}
	switch {
	case errors.Is(err, ruleset.ErrGone):
		writeProblem(w, http.StatusNotFound, "the reservation's policy does not exist any more, and with it nothing is held")
	case r.Context().Err() != nil: // the caller is gone and will not read this
		writeProblem(w, http.StatusServiceUnavailable, "the request was canceled")
	default:
		a.log.Error("no decision", "policy", policy, "error", err)
		writeProblem(w, http.StatusServiceUnavailable, "no decision could be made; the daemon's log says why")
	}
}

// inputProblem returns the problem of an invalid request.
func inputProblem(policy string, err error) (string, bool) {
	var badQuery *ruleset.InputError
	switch {
	case errors.Is(err, weir.ErrReserveOnly):
		return fmt.Sprintf("policy %q limits concurrency: slots are held, not spent, so a check cannot take one; use /v1/reserve", policy), true
	case errors.As(err, &badQuery), errors.Is(err, weir.ErrInvalid) && !errors.Is(err, compiled.ErrLimits):
		return err.Error(), true
	case errors.Is(err, ruleset.ErrTicket):
		return `"id" is no reservation of this client: it is what /v1/reserve returned`, true
	}
	return "", false
}
