package integrations

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
)

// parseEnvoy reads a configuration of Envoy's the way Envoy does: a field that there is not
// is an error, and so is a value that a field may not have, also in the configurations of
// extensions. Each of these is returned, after the whole.
func parseEnvoy(text []byte) (all []proto.Message, err error) {
	json, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, err
	}
	whole := &bootstrapv3.Bootstrap{}
	if err := protojson.Unmarshal(json, whole); err != nil { // which knows no field by halves
		return nil, err
	}
	all = append(all, whole)
	err = protorange.Range(whole.ProtoReflect(), func(at protopath.Values) error {
		if last := at.Index(-1); last.Step.Kind() == protopath.AnyExpandStep {
			all = append(all, last.Value.Message().Interface())
		}
		return nil
	})
	for _, m := range all {
		if v, ok := m.(interface{ ValidateAll() error }); ok {
			err = errors.Join(err, v.ValidateAll())
		} else {
			err = errors.Join(err, fmt.Errorf("%T cannot be validated", m))
		}
	}
	return all, err
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The file is what Envoy's own types take, and what is wrong would be seen.
func TestEnvoyFile(t *testing.T) {
	t.Parallel()
	text := readFile(t, "envoy.yaml")
	all, err := parseEnvoy([]byte(text))
	if err != nil || len(all) != 5 {
		t.Fatalf("%d messages, %v; want the whole and 4 extensions", len(all), err)
	}
	for _, tt := range []struct{ name, from, to string }{
		{"an unknown field", "static_resources:", "static_resource:"},
		{"an unknown field of an extension", "failure_mode_deny:", "failure_mode_denied:"},
		{"an unknown type", "ratelimit.v3.RateLimit\n", "ratelimit.v3.RateLimits\n"},
		{"an unknown enum", "DRAFT_VERSION_03", "DRAFT_VERSION_04"},
		{"a value out of range", "port_value: 9000", "port_value: 99000"},
		{"a value of an extension that must not be empty", "domain: edge\n", "domain: ''\n"},
	} {
		changed := strings.Replace(text, tt.from, tt.to, 1)
		if _, err := parseEnvoy([]byte(changed)); err == nil || changed == text {
			t.Errorf("%s is not noticed", tt.name)
		}
	}
}

// find returns the message of a type among those of a configuration.
func find[M proto.Message](t *testing.T, all []proto.Message) (found M) {
	t.Helper()
	for _, m := range all {
		if found, ok := m.(M); ok {
			return found
		}
	}
	t.Fatalf("there is no %T", found)
	return found
}

// asks returns what Envoy asks about a request, by the actions of the file. Envoy leaves out
// a descriptor if a header that it needs is not there.
func asks(t *testing.T, all []proto.Message, address string, headers map[string]string) *rlsv3.RateLimitRequest {
	t.Helper()
	host := find[*managerv3.HttpConnectionManager](t, all).GetRouteConfig().GetVirtualHosts()[0]
	out := &rlsv3.RateLimitRequest{Domain: find[*filterv3.RateLimit](t, all).GetDomain()}
	for _, limit := range host.GetRateLimits() {
		d := &rlcommon.RateLimitDescriptor{}
		for _, action := range limit.GetActions() {
			if key, value := entryOf(t, action, address, headers); value != "" {
				d.Entries = append(d.Entries, &rlcommon.RateLimitDescriptor_Entry{Key: key, Value: value})
			}
		}
		if len(d.Entries) == len(limit.GetActions()) {
			out.Descriptors = append(out.Descriptors, d)
		}
	}
	return out
}

func entryOf(t *testing.T, action *routev3.RateLimit_Action, address string, headers map[string]string) (key, value string) {
	t.Helper()
	switch kind := action.GetActionSpecifier().(type) {
	case *routev3.RateLimit_Action_RemoteAddress_:
		return "remote_address", address
	case *routev3.RateLimit_Action_RequestHeaders_:
		return kind.RequestHeaders.GetDescriptorKey(), headers[kind.RequestHeaders.GetHeaderName()]
	}
	t.Fatalf("the test does not know the action %v", action)
	return "", ""
}

// What envoy.yaml asks is what envoy-weir.yaml has rules for.
func TestEnvoyRules(t *testing.T) {
	t.Parallel()
	all, err := parseEnvoy([]byte(readFile(t, "envoy.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(serve(t, newPatient(t), "envoy-weir.yaml").GRPC.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask := func(address, path, user string) *rlsv3.RateLimitResponse {
		t.Helper()
		r := asks(t, all, address, map[string]string{":path": path, "x-user": user})
		got, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), r)
		if err != nil || len(got.GetStatuses()) != len(r.GetDescriptors()) {
			t.Fatalf("%v, %v for %v", got, err, r)
		}
		return got
	}
	for i := range uint32(10) {
		got := ask("198.51.100.1", "/login", "alice")
		address, user := got.GetStatuses()[0], got.GetStatuses()[1]
		if got.GetOverallCode() != rlsv3.RateLimitResponse_OK || address.GetLimitRemaining() != 49-i || user.GetLimitRemaining() != 9-i {
			t.Fatalf("request %d: %v", i, got)
		}
		if l := user.GetCurrentLimit(); l.GetUnit() != rlsv3.RateLimitResponse_RateLimit_MINUTE || l.GetUnitMultiplier().GetValue() != 5 || l.GetRequestsPerUnit() != 10 {
			t.Fatalf("the limit of a user is %v", l)
		}
	}
	if got := ask("198.51.100.1", "/login", "alice"); got.GetOverallCode() != rlsv3.RateLimitResponse_OVER_LIMIT {
		t.Errorf("the eleventh: %v", got)
	}
	if got := ask("198.51.100.1", "/login", ""); len(got.GetStatuses()) != 1 || got.GetOverallCode() != rlsv3.RateLimitResponse_OK {
		t.Errorf("without a user: %v", got)
	}
	if got := ask("192.0.2.7", "/", "bob"); got.GetStatuses()[0].GetLimitRemaining() != math.MaxUint32 || got.GetStatuses()[1].GetCurrentLimit() != nil {
		t.Errorf("monitoring: %v", got)
	}
}
