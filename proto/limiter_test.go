// Package proto_test holds the protocol to the names that people script against.
// It stands beside the definition because all of gen/ is generated.
package proto_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/gen/weir/v1/weirv1connect"
)

// One type serves both listeners: Connect's handler and grpc-go's server have the
// same methods.
var (
	_ weirv1connect.LimiterServiceHandler = both{}
	_ weirv1.LimiterServiceServer         = both{}
)

type both struct {
	weirv1.UnimplementedLimiterServiceServer
}

// jsonNames is the surface, as in docs/http.md. A batch has the same names as
// columns, and the places in them.
var jsonNames = map[string]string{
	"CheckRequest":       "policy key cost peek keys costs class max_wait_ms",
	"CheckResponse":      "allowed policy limited_by limit remaining retry_after_ms reset_after_ms reason delay_ms",
	"CheckBatchRequest":  "policy key cost peek keys costs class max_wait_ms atomic policy_index debit class_index",
	"CheckBatchResponse": "allowed limited_by limit remaining retry_after_ms reset_after_ms reason delay_ms limited_by_index reason_index",
	"KeyColumn":          "name key",
	"CostColumn":         "unit cost",
	"ReserveRequest":     "policy key cost keys costs class max_wait_ms ttl_ms",
	"ReserveResponse":    "allowed policy limited_by limit remaining retry_after_ms reset_after_ms reason delay_ms id expires_in_ms",
	"CommitRequest":      "id used used_costs",
	"CommitResponse":     "refunded overrun late",
	"CancelRequest":      "id",
	"CancelResponse":     "refunded overrun late",
	"RenewRequest":       "id ttl_ms",
	"RenewResponse":      "renewed expires_in_ms",
}

func TestNames(t *testing.T) {
	got := map[string]string{}
	messages := weirv1.File_weir_v1_limiter_proto.Messages()
	for i := range messages.Len() {
		m := messages.Get(i)
		got[string(m.Name())] = strings.Join(fieldNames(m), " ")
	}
	if diff := cmp.Diff(jsonNames, got); diff != "" {
		t.Errorf("fields of the messages (-want +got):\n%s", diff)
	}
}

func TestVerbs(t *testing.T) {
	var got []string
	methods := weirv1.File_weir_v1_limiter_proto.Services().ByName("LimiterService").Methods()
	for i := range methods.Len() {
		got = append(got, string(methods.Get(i).Name()))
	}
	want := []string{"Check", "CheckBatch", "Reserve", "Commit", "Cancel", "Renew"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("methods (-want +got):\n%s", diff)
	}
}

// TestClassHasRoom keeps field number 7 free until the field class takes it.
func TestClassHasRoom(t *testing.T) {
	messages := weirv1.File_weir_v1_limiter_proto.Messages()
	for _, name := range []protoreflect.Name{"CheckRequest", "CheckBatchRequest", "ReserveRequest"} {
		if f := messages.ByName(name).Fields().ByNumber(7); f != nil && f.Name() != "class" {
			t.Errorf("%s: field 7 is %s, want it kept for class", name, f.Name())
		}
	}
}

// TestSameNumbers checks that a name of a check has the same number in a batch
// and in a reservation.
func TestSameNumbers(t *testing.T) {
	for of, others := range map[protoreflect.Name][]protoreflect.Name{
		"CheckRequest":  {"CheckBatchRequest", "ReserveRequest"},
		"CheckResponse": {"CheckBatchResponse", "ReserveResponse"},
	} {
		messages := weirv1.File_weir_v1_limiter_proto.Messages()
		fields := messages.ByName(of).Fields()
		for _, other := range others {
			for i := range fields.Len() {
				f := fields.Get(i)
				if o := messages.ByName(other).Fields().ByName(f.Name()); o != nil && o.Number() != f.Number() {
					t.Errorf("%s has number %d in %s and %d in %s", f.Name(), f.Number(), of, o.Number(), other)
				}
			}
		}
	}
}

// TestJSON shows replies as Connect's JSON codec is to write them. What is false,
// 0 or "" is there too; only delay_ms may be absent.
func TestJSON(t *testing.T) {
	tests := []struct {
		name    string
		message proto.Message
		want    string
	}{
		{
			"refused",
			&weirv1.CheckResponse{
				Policy: "default", LimitedBy: "default", Limit: 100, Remaining: 3,
				RetryAfterMs: 20, ResetAfterMs: 970, Reason: "exhausted",
			},
			`{"allowed":false,"policy":"default","limited_by":"default","limit":"100","remaining":"3",` +
				`"retry_after_ms":"20","reset_after_ms":"970","reason":"exhausted"}`,
		},
		{
			"never",
			&weirv1.CheckResponse{Policy: "p", LimitedBy: "p.day", RetryAfterMs: -1, Reason: "too_costly"},
			`{"allowed":false,"policy":"p","limited_by":"p.day","limit":"0","remaining":"0",` +
				`"retry_after_ms":"-1","reset_after_ms":"0","reason":"too_costly"}`,
		},
		{
			"later",
			&weirv1.CheckResponse{Allowed: true, Policy: "p", Limit: 1, ResetAfterMs: 120, Reason: "admitted", DelayMs: proto.Int64(0)},
			`{"allowed":true,"policy":"p","limited_by":"","limit":"1","remaining":"0",` +
				`"retry_after_ms":"0","reset_after_ms":"120","reason":"admitted","delay_ms":"0"}`,
		},
		{
			"committed",
			&weirv1.CommitResponse{},
			`{"refunded":"0","overrun":"0","late":false}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := toJSON(t, tt.message); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestAbsentCost checks that no cost and a cost of 0 can be told apart, on the
// wire and in JSON, where numbers need no quotes.
func TestAbsentCost(t *testing.T) {
	tests := []struct {
		json string
		want *int64
	}{
		{`{"policy":"p","key":"k"}`, nil},
		{`{"policy":"p","key":"k","cost":0}`, proto.Int64(0)},
		{`{"policy":"p","key":"k","cost":5}`, proto.Int64(5)},
		{`{"policy":"p","key":"k","cost":"5"}`, proto.Int64(5)},
	}
	for _, tt := range tests {
		var parsed, received weirv1.CheckRequest
		if err := protojson.Unmarshal([]byte(tt.json), &parsed); err != nil {
			t.Fatalf("%s: %v", tt.json, err)
		}
		wire, err := proto.Marshal(&parsed)
		if err != nil {
			t.Fatal(err)
		}
		if err := proto.Unmarshal(wire, &received); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, received.Cost); diff != "" {
			t.Errorf("cost of %s (-want +got):\n%s", tt.json, diff)
		}
	}
}

// TestBatchIsSmall compares a hundred checks, half of them refused, as columns and
// one by one.
func TestBatchIsSmall(t *testing.T) {
	var asked, answered int // bytes, one by one
	request := &weirv1.CheckBatchRequest{Policy: []string{"default"}}
	response := &weirv1.CheckBatchResponse{LimitedBy: []string{"", "default"}, Reason: []string{"admitted", "exhausted"}}
	for i := range 100 {
		key := fmt.Sprintf("user-%03d", i)
		request.Key = append(request.Key, key)
		asked += proto.Size(&weirv1.CheckRequest{Policy: "default", Key: key})

		d := &weirv1.CheckResponse{Allowed: i%2 == 0, Policy: "default", Limit: 100, ResetAfterMs: 970, Reason: "admitted"}
		if !d.Allowed {
			d.LimitedBy, d.RetryAfterMs, d.Reason = "default", 20, "exhausted"
		}
		answered += proto.Size(d)
		response.Allowed = append(response.Allowed, d.Allowed)
		response.LimitedByIndex = append(response.LimitedByIndex, uint32(i%2))
		response.ReasonIndex = append(response.ReasonIndex, uint32(i%2))
		response.Limit = append(response.Limit, d.Limit)
		response.RetryAfterMs = append(response.RetryAfterMs, d.RetryAfterMs)
		response.ResetAfterMs = append(response.ResetAfterMs, d.ResetAfterMs)
	}
	t.Logf("100 checks: %d bytes as columns, %d one by one", proto.Size(request), asked)
	t.Logf("100 decisions: %d bytes as columns, %d one by one", proto.Size(response), answered)
	if got := proto.Size(request); got > 1100 {
		t.Errorf("100 checks take %d bytes, want at most 11 each: a key of 8 and its two of framing", got)
	}
	if got := proto.Size(response); got > 800 {
		t.Errorf("100 decisions take %d bytes, want at most 8 each", got)
	}
}

func fieldNames(m protoreflect.MessageDescriptor) []string {
	var names []string
	fields := m.Fields()
	for i := range fields.Len() {
		names = append(names, fields.Get(i).TextName())
	}
	return names
}

// toJSON writes m as Connect is to. protojson varies its spaces on purpose.
func toJSON(t *testing.T, m proto.Message) string {
	t.Helper()
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		t.Fatal(err)
	}
	return compact.String()
}
