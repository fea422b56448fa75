// Package rpcdetail makes the details of a google.rpc.Status that tell callers over gRPC and Connect
// which quota is used up and when to retry.
package rpcdetail

import (
	"strconv"
	"time"

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

// Details returns a QuotaFailure with the violations, if there are any, and, if waiting helps, a
// RetryInfo. Clients do not retry without a RetryInfo. Retry is weir.Never if waiting cannot help, and
// 0 if nobody knows.
func Details(retry time.Duration, violations ...*errdetails.QuotaFailure_Violation) []*anypb.Any {
	var out []*anypb.Any
	if len(violations) > 0 {
		out = pack(out, &errdetails.QuotaFailure{Violations: violations})
	}
	if retry > 0 && retry != weir.Never {
		out = pack(out, &errdetails.RetryInfo{RetryDelay: durationpb.New(retry)})
	}
	return out
}

// pack appends a detail. New fails only for text that is not UTF-8; such a detail is left out.
func pack(list []*anypb.Any, detail proto.Message) []*anypb.Any {
	packed, err := anypb.New(detail)
	if err != nil {
		return list
	}
	return append(list, packed)
}

// PushbackMillis returns the value of Pushback: the milliseconds to wait, rounded up, or -1 for
// weir.Never, which means not to retry.
func PushbackMillis(retry time.Duration) string {
	return strconv.FormatInt(ruleset.Millis(retry), 10)
}
