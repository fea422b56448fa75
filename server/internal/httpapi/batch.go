package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/ruleset"
)

// batch answers POST /v1/check/batch.
func (a *api) batch(w http.ResponseWriter, r *http.Request) {
	state := a.state()
	client, ok := caller(w, r, state)
	if !ok {
		return
	}
	s := scratches.Get().(*scratch)
	defer s.free()
	if !s.read(w, r, &batchForm) {
		return
	}
	if !state.findAll(w, client, &s.request) {
		return
	}
	began := time.Now()
	verdicts, err := a.checkBatch(r.Context(), s)
	if err != nil {
		a.writeBatchUndecided(w, r, s.batch.items, err)
		return
	}
	a.observeEach(s.batch.items, verdicts, time.Since(began)/time.Duration(max(1, len(verdicts)))) // it is one measurement
	s.writeBatch(w, verdicts)
}

// checkBatch decides all checks. The verdicts may be in s.
func (a *api) checkBatch(ctx context.Context, s *scratch) ([]ruleset.Verdict, error) {
	b := &s.batch
	if s.request.atomic {
		return a.engine.CheckAll(ctx, b.items)
	}
	b.verdicts = slices.Grow(b.verdicts[:0], len(b.items))[:len(b.items)]
	return b.verdicts, a.engine.CheckEachInto(ctx, b.items, b.verdicts)
}

// writeBatch answers a batch.
func (s *scratch) writeBatch(w http.ResponseWriter, verdicts []ruleset.Verdict) {
	s.out = append(s.out[:0], `{"decisions":[`...)
	for i := range verdicts {
		pause(i)
		if i > 0 {
			s.out = append(s.out, ',')
		}
		s.out = append(appendDecision(s.out, &verdicts[i]), '}')
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

// findAll finds the policies of a batch, or answers with a problem and returns false.
func (s *State) findAll(w http.ResponseWriter, c *identity.Client, req *request) bool {
	for i, policy := range req.batch.policies {
		x := &req.batch.items[i]
		rule, problem := s.find(c, policy)
		switch {
		case rule == nil:
			problem.Detail = fmt.Sprintf("checks[%d]: %s", i, problem.Detail)
			problem.Write(w)
			return false
		case x.Peek && req.atomic:
			writeProblem(w, http.StatusBadRequest, fmt.Sprintf("checks[%d]: a check with peek cannot be part of an atomic batch", i))
			return false
		}
		x.Rule, x.Query.Client = rule, nameOf(c)
	}
	return true
}

// writeBatchUndecided answers when a batch was not decided.
func (a *api) writeBatchUndecided(w http.ResponseWriter, r *http.Request, items []ruleset.Item, err error) {
	if bad, ok := errors.AsType[*ruleset.ItemError](err); ok {
		policy := items[bad.Index].Rule.Name()
		if problem, ok := inputProblem(policy, bad.Err); ok {
			writeProblem(w, http.StatusBadRequest, fmt.Sprintf("checks[%d]: %s", bad.Index, problem))
			return
		}
	}
	a.writeUndecided(w, r, "", err)
}
