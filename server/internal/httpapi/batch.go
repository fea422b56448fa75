package httpapi

import (
	"runtime"

	"github.com/weirlimit/weir/server/internal/call"
)

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
