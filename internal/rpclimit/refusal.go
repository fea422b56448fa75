package rpclimit

import (
	"net/http"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/rpcdetail"
	"github.com/weirlimit/weir/weirhttp"
)

// The codes of refusals, the same in gRPC and Connect.
const (
	InvalidArgument   = 3
	PermissionDenied  = 7
	ResourceExhausted = 8
	Unavailable       = 14
)

// Refusal is a refusal in terms of gRPC and Connect.
type Refusal struct {
	Code    uint32
	Message string
	Details []*anypb.Any // a QuotaFailure and a RetryInfo

	// Pushback is the value of rpcdetail.Pushback, "" if nobody knows when to retry.
	Pushback string

	// RetrySeconds is the value of Retry-After, "" if there is none.
	RetrySeconds string
}

// NewRefusal returns a refusal as RPCs have it.
func NewRefusal(d *weirhttp.Denial) *Refusal {
	r := &Refusal{Code: code(d.Problem.Status), Message: d.Problem.Detail}
	retry := retryOf(d)
	r.Details = rpcdetail.Details(retry, violations(d)...)
	if retry > 0 {
		r.Pushback = rpcdetail.PushbackMillis(retry)
	}
	h := http.Header{}
	weirhttp.SetHeaders(h, weirhttp.Quotas{}, -1, d.Decision)
	r.RetrySeconds = h.Get("Retry-After")
	return r
}

// retryOf returns when to retry, 0 if nobody knows.
func retryOf(d *weirhttp.Denial) time.Duration {
	switch {
	case d.Err != nil:
		return 0
	case d.Problem.Status == http.StatusBadRequest:
		return weir.Never
	}
	return d.Decision.RetryAfter
}

func code(status int) uint32 {
	switch status {
	case http.StatusTooManyRequests:
		return ResourceExhausted
	case http.StatusForbidden:
		return PermissionDenied
	case http.StatusBadRequest:
		return InvalidArgument
	}
	return Unavailable
}

// violations returns the limits that refused, unless they are hidden. Of several, the value of only
// one is known: that of the decision.
func violations(d *weirhttp.Denial) []*errdetails.QuotaFailure_Violation {
	var list []*errdetails.QuotaFailure_Violation
	for _, name := range d.Problem.Violated {
		v := &errdetails.QuotaFailure_Violation{Subject: kind(d.Verdict.Subject.Key), Description: d.Problem.Detail, QuotaId: name}
		if name == decidedBy(d) {
			v.QuotaValue = d.Decision.Limit
		}
		list = append(list, v)
	}
	return list
}

// decidedBy returns the name of the limit that the decision is about.
func decidedBy(d *weirhttp.Denial) string {
	switch {
	case d.Policy == nil:
		return d.Verdict.LimitedBy()
	case int(d.Decision.By) < len(d.Policy.Limits()):
		return d.Policy.LimitName(int(d.Decision.By))
	}
	return d.Policy.Name()
}

// kind returns how a subject was identified, such as "user" or "ip". The key itself may be a secret, an
// address or the name of a person.
func kind(key string) string {
	k, _, _ := strings.Cut(key, ":")
	if k == "sha256" { // of a key that is too long
		return ""
	}
	return k
}
