package rpclimit

import (
	"fmt"
	"net/http"

	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/rpcdetail"
	"github.com/weirlimit/weir/weirhttp"
)

// NewSubscriptionRefusal returns the refusal of a subscription, or of more items in one. It says when to
// retry only if a rate refused: what is in use comes back when the caller ends a subscription or removes
// items, not by waiting.
func NewSubscriptionRefusal(d guard.SubscriptionDecision) *Refusal {
	problem := weirhttp.Denied("subscriptions", d.Limit, d.Decision)
	r := &Refusal{Code: code(problem.Status), Message: problem.Detail}
	retry := d.RetryAfter
	switch d.Limit {
	case "subscriptions":
		r.Message = fmt.Sprintf("%d subscriptions are open, which is the limit; close one first", d.Decision.Limit)
		retry = weir.Never
	case "items_each", "items_total":
		r.Message = fmt.Sprintf("the limit %s is %d, of which %d are left; remove items first", d.Limit, d.Decision.Limit, d.Remaining)
		retry = weir.Never
	}
	if problem.Status == http.StatusBadRequest {
		retry = weir.Never
	}
	var violated []*errdetails.QuotaFailure_Violation
	if d.Limit != "" {
		violated = append(violated, &errdetails.QuotaFailure_Violation{Description: r.Message, QuotaId: d.Limit, QuotaValue: d.Decision.Limit})
	}
	r.Details = rpcdetail.Details(retry, violated...)
	return r
}
