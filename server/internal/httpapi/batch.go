package httpapi

import (
	"runtime"

	"github.com/weirlimit/weir/server/internal/call"
)

// checkBatch answers POST /v1/check/batch.
func (a *api) checkBatch(x *exchange) *call.Error {
	if err := findAll(x.caller, &x.request); err != nil {
		return err
	}
	kind := call.Each
	if x.request.atomic {
		kind = call.All
	}
	verdicts, err := a.Core.CheckBatch(x.r.Context(), kind, x.batch.items, x.batch.verdicts)
	if err != nil {
		return err
	}
	if kind == call.Each {
		x.batch.verdicts = verdicts
	}
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
