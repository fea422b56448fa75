package server

import (
	"context"
	"os"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/server/internal/envoyapi"
)

// edge is a domain with so many requests a minute for each user.
func edge(requests uint32) []EnvoyDomain {
	return []EnvoyDomain{{Name: "edge", Descriptors: []EnvoyDescriptor{
		{Key: "user", Limit: &EnvoyLimit{Unit: envoyapi.Minute, RequestsPerUnit: requests}},
	}}}
}

// askEnvoy asks for hits of alice.
func askEnvoy(ctx context.Context, t *testing.T, r *running, hits uint64) (*rlsv3.RateLimitResponse, error) {
	t.Helper()
	return rlsv3.NewRateLimitServiceClient(dialGRPC(t, r, nil)).ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{
		Domain: "edge", Descriptors: []*rlcommon.RateLimitDescriptor{{
			Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: "user", Value: "alice"}}, HitsAddend: wrapperspb.UInt64(hits),
		}},
	})
}

func wantEnvoy(t *testing.T, r *running, hits uint64, code rlsv3.RateLimitResponse_Code, remaining uint32) {
	t.Helper()
	got, err := askEnvoy(t.Context(), t, r, hits)
	if err != nil {
		t.Fatal(err)
	}
	if got.OverallCode != code || got.Statuses[0].LimitRemaining != remaining {
		t.Errorf("%v, want %v and %d remaining", got, code, remaining)
	}
}

// What was used stays used when the numbers change.
func TestEnvoy(t *testing.T) {
	r := run(t, Config{Limiter: frozenTable(t), GRPC: Listener{Address: "127.0.0.1:0"}, Live: Live{Envoy: edge(10)}})
	wantEnvoy(t, r, 4, rlsv3.RateLimitResponse_OK, 6)
	wantEnvoy(t, r, 7, rlsv3.RateLimitResponse_OVER_LIMIT, 6)
	if err := r.Reload(t.Context(), Live{Envoy: edge(20)}); err != nil {
		t.Fatal(err)
	}
	wantEnvoy(t, r, 1, rlsv3.RateLimitResponse_OK, 15)
	bad := edge(1)
	bad[0].Descriptors[0].Key = ""
	wantError(t, r.Reload(t.Context(), Live{Envoy: bad}), "a descriptor needs a key")
	wantEnvoy(t, r, 0, rlsv3.RateLimitResponse_OK, 15)
}

func TestEnvoyNeedsAToken(t *testing.T) {
	const aliceToken = "alice-0123456789abcdef0123456789abcdef"
	r := run(t, Config{Limiter: frozenTable(t), GRPC: Listener{Address: "127.0.0.1:0"}, Live: Live{
		Envoy: edge(10), Clients: []Client{{Name: "edge", Tokens: []secret.Secret{secret.New(aliceToken)}, Grants: Grants{Domains: []string{"*"}}}},
	}})
	if _, err := askEnvoy(t.Context(), t, r, 1); status.Code(err) != codes.Unauthenticated {
		t.Error(err)
	}
	if _, err := askEnvoy(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+aliceToken), t, r, 1); err != nil {
		t.Error(err)
	}
}

// timed is a limiter that tells how long it was given.
type timed struct {
	weir.Limiter
	given chan time.Duration
}

func (*timed) Set(context.Context, *weir.Policy, *weir.Policy) error { return nil }

func (l *timed) Take(ctx context.Context, _ *weir.Policy, _ string, _ int64) (weir.Decision, error) {
	deadline, _ := ctx.Deadline()
	l.given <- time.Until(deadline)
	return weir.Decision{}, context.DeadlineExceeded
}

// Envoy's time comes to the store, which package tiered gives 5 ms less; if it does not
// answer, Envoy hears that no decision could be made.
func TestEnvoyDeadline(t *testing.T) {
	l := &timed{given: make(chan time.Duration, 1)}
	r := run(t, Config{Limiter: l, GRPC: Listener{Address: "127.0.0.1:0"}, Live: Live{Envoy: edge(10)}})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := askEnvoy(ctx, t, r, 1); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	if d := <-l.given; d <= 0 || d > 5*time.Second {
		t.Errorf("the store was given %v", d)
	}
}

// The example is what Envoy's own types take, without a field too much.
func TestEnvoyExample(t *testing.T) {
	text, err := os.ReadFile("../docs/integrations/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	json, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	var b bootstrapv3.Bootstrap
	if err := protojson.Unmarshal(json, &b); err != nil {
		t.Fatal(err)
	}
	if err := b.ValidateAll(); err != nil {
		t.Error(err)
	}
	if n := len(b.StaticResources.Clusters); n != 2 {
		t.Errorf("%d clusters", n)
	}
}
