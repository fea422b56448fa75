package identity

import (
	"net/http"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirlimit/weir/internal/rpcdetail"
)

// Pushback is the trailer that tells gRPC clients with automatic retries how long to wait.
const Pushback = rpcdetail.Pushback

// Details returns the details of a google.rpc.Status, for gRPC and Connect: a QuotaFailure
// that names the exhausted quota and, if waiting helps, a RetryInfo. A Refusal with another
// status than 429 has no details.
func (r *Refusal) Details() []*anypb.Any {
	if r.Status != http.StatusTooManyRequests {
		return nil
	}
	return rpcdetail.Details(r.RetryAfter, &errdetails.QuotaFailure_Violation{
		Subject: "clientip:" + r.From, Description: r.Problem, QuotaId: failedLogins, QuotaValue: failuresPerMinute,
	})
}

// PushbackMillis returns the value of Pushback.
func (r *Refusal) PushbackMillis() string { return rpcdetail.PushbackMillis(r.RetryAfter) }
