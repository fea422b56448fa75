package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
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
	if !state.findAll(w, client, &s.request) {
		return
	}
	items := s.batch.items
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
		pause(i)
		a.tell(s, &s.batch.items[i].Query, s.batch.items[i].Peek, &verdicts[i], took/time.Duration(len(verdicts)))
		if i > 0 {
			s.out = append(s.out, ',')
		}
		s.out = append(appendDecision(s.out, &verdicts[i]), '}')
	}
	s.out = append(s.out, "]}\n"...)
	writeJSON(w, s.out)
}

// pause gives others their turn after some checks of a batch: on a busy machine short
// requests would wait for a thousand.
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
			writeProblem(w, http.StatusBadRequest, fmt.Sprintf("checks[%d]: a check that only looks cannot be part of an atomic batch", i))
			return false
		}
		x.Rule, x.Query.Client = rule, nameOf(c)
	}
	return true
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
