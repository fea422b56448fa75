package identity

import (
	"net/http"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
)

// Pushback is the trailer in which gRPC's clients that retry by themselves look for how long
// to wait. Others look at the details.
const Pushback = "grpc-retry-pushback-ms"

// Details says why somebody has to wait the way google.rpc.Status does, for gRPC and Connect:
// a QuotaFailure with what was exhausted and, if waiting helps, a RetryInfo. Clients take its
// absence for a reason not to try again. A Refusal with another status than 429 has none.
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
		if packed, err := anypb.New(d); err == nil { // it fails for text that is not UTF-8, and this is
			out = append(out, packed)
		}
	}
	return out
}

// PushbackMillis is the value of Pushback: the milliseconds to wait, rounded up, or -1, which
// means not to try again.
func (r *Refusal) PushbackMillis() string {
	return strconv.FormatInt(guard.Millis(r.RetryAfter), 10)
}
