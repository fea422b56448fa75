package identity

import (
	"net/http"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// Pushback is the trailer that tells gRPC clients with automatic retries how long to wait.
// Other clients read the details.
const Pushback = "grpc-retry-pushback-ms"

// Details returns the details of a google.rpc.Status, for gRPC and Connect: a QuotaFailure
// that names the exhausted quota and, if waiting helps, a RetryInfo. Clients do not retry
// without a RetryInfo. A Refusal with another status than 429 has no details.
func (r *Refusal) Details() []*anypb.Any {
	if r.Status != http.StatusTooManyRequests {
		return nil
	}
	details := []proto.Message{&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
		Subject: "clientip:" + r.From, Description: r.Problem, QuotaId: failedLogins, QuotaValue: failuresPerMinute,
	}}}}
	if r.RetryAfter != weir.Never {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(r.RetryAfter)})
	}
	var out []*anypb.Any
	for _, d := range details {
		if packed, err := anypb.New(d); err == nil { // New fails only for text that is not UTF-8; this text always is
			out = append(out, packed)
		}
	}
	return out
}

// PushbackMillis returns the value of Pushback: the milliseconds to wait, rounded up, or -1,
// which means not to retry.
func (r *Refusal) PushbackMillis() string {
	return strconv.FormatInt(ruleset.Millis(r.RetryAfter), 10)
}
