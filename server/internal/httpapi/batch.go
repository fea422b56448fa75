package httpapi

import (
	"net/http"
	"runtime"

	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
)

// batch answers POST /v1/check/batch.
func (a *api) batch(w http.ResponseWriter, r *http.Request) {
	state := a.state()
	s := scratches.Get().(*scratch)
	defer s.free()
	caller, err := a.enter(w, r, state, s, &batchForm)
	if err == nil {
		err = findAll(caller, &s.request)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	kind := call.Each
	if s.request.atomic {
		kind = call.All
	}
	verdicts, err := a.core.CheckBatch(r.Context(), kind, s.batch.items, s.batch.verdicts)
	if err != nil {
		writeError(w, err)
		return
	}
	if kind == call.Each {
		s.batch.verdicts = verdicts
	}
	s.writeBatch(w, verdicts)
}

// writeBatch answers a batch.
func (s *scratch) writeBatch(w http.ResponseWriter, verdicts []ruleset.Verdict) {
	s.out = append(s.out[:0], `{"decisions":[`...)
	for i := range verdicts {
		pause(i)
		if i > 0 {
			s.out = append(s.out, ',')
		}
		s.out = appendDecision(s.out, &verdicts[i])
		if s.batch.items[i].Query.Shadow {
			s.out = appendShadow(s.out, &verdicts[i])
		}
		s.out = append(s.out, '}')
	}
	s.out = append(s.out, "]}\n"...)
	writeJSON(w, s.out)
}

// pause yields the processor after some checks of a batch, so that short requests on a busy
// machine do not wait for a batch of a thousand.
func pause(check int) {
	if check%64 == 63 {
		runtime.Gosched()
	}
}

// findAll finds the policies of a batch.
func findAll(caller call.Caller, req *request) *call.Error {
	for i, policy := range req.batch.policies {
		x := &req.batch.items[i]
		rule, err := caller.Rule(policy)
		switch {
		case err != nil:
			return err.In(i)
		case x.Peek && req.atomic:
			return call.Invalid("a check with peek cannot be part of an atomic batch").In(i)
		}
		x.Rule = rule
		caller.Owns(&x.Query)
	}
	return nil
}
