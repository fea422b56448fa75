package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/identity"
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
	items, ok := state.items(w, client, &s.request)
	if !ok {
		return
	}
	began := time.Now()
	check := a.guard.CheckEach
	if s.request.atomic {
		check = a.guard.CheckAll
	}
	verdicts, err := check(r.Context(), items)
	if err != nil {
		a.writeBatchUndecided(w, r, items, err)
		return
	}
	a.writeBatch(w, s, verdicts, time.Since(began))
}

// writeBatch answers a batch that took so long.
func (a *api) writeBatch(w http.ResponseWriter, s *scratch, verdicts []guard.Verdict, took time.Duration) {
	s.out = append(s.out[:0], `{"decisions":[`...)
	for i := range verdicts {
		a.tell(s, &s.request.items[i], &verdicts[i], took/time.Duration(len(verdicts)))
		if i > 0 {
			s.out = append(s.out, ',')
		}
		s.out = append(appendDecision(s.out, &verdicts[i]), '}')
	}
	s.out = append(s.out, "]}\n"...)
	writeJSON(w, s.out)
}

// items finds the policies of a batch, or answers with a problem and returns false.
func (s *State) items(w http.ResponseWriter, c *identity.Client, req *request) ([]guard.Item, bool) {
	items := make([]guard.Item, len(req.items))
	for i := range req.items {
		x := &req.items[i]
		rule, problem := s.find(c, x.policy)
		switch {
		case rule == nil:
			problem.Detail = fmt.Sprintf("checks[%d]: %s", i, problem.Detail)
			problem.Write(w)
			return nil, false
		case x.peek && req.atomic:
			writeProblem(w, http.StatusBadRequest, fmt.Sprintf("checks[%d]: a check that only looks cannot be part of an atomic batch", i))
			return nil, false
		}
		x.query.Client = nameOf(c)
		items[i] = guard.Item{Rule: rule, Query: x.query, Peek: x.peek}
	}
	return items, true
}

// writeBatchUndecided answers when a batch was not decided.
func (a *api) writeBatchUndecided(w http.ResponseWriter, r *http.Request, items []guard.Item, err error) {
	if bad, ok := errors.AsType[*guard.ItemError](err); ok {
		policy := items[bad.Index].Rule.Name()
		if problem, ok := inputProblem(policy, bad.Err); ok {
			writeProblem(w, http.StatusBadRequest, fmt.Sprintf("checks[%d]: %s", bad.Index, problem))
			return
		}
	}
	a.writeUndecided(w, r, "", err)
}
