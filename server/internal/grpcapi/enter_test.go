package grpcapi

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/weirlimit/weir"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/ruleset"
)

func wantCode(t *testing.T, err error, code codes.Code, part string) {
	t.Helper()
	if got := status.Convert(err); got.Code() != code || !strings.Contains(got.Message(), part) {
		t.Errorf("error %v, want %v with %q", got, code, part)
	}
}

// with returns a context that brings header fields.
func with(pairs ...string) context.Context {
	return metadata.AppendToOutgoingContext(context.Background(), pairs...)
}

func TestWhoMayCall(t *testing.T) {
	w := newWorld(t, nil)
	w.state.Authenticator = apitest.Authenticator(t)
	client := w.limiter(t)
	for _, tt := range []struct {
		name   string
		fields []string
		policy string // and its class after a /
		code   codes.Code
		part   string
	}{
		{"nothing", nil, "default", codes.Unauthenticated, "missing client token"},
		{"alice", []string{"authorization", "Bearer " + apitest.Alice}, "secret", codes.OK, ""},
		{"any case", []string{"Authorization", "bearer " + apitest.Alice}, "default", codes.OK, ""},
		{"bob", []string{"authorization", "Bearer " + apitest.Bob}, "default", codes.OK, ""},
		{"bob where he may not", []string{"authorization", "Bearer " + apitest.Bob}, "secret", codes.PermissionDenied, "the client bob may not use"},
		{"wrong", []string{"authorization", "Bearer " + apitest.Wrong}, "default", codes.Unauthenticated, "unknown client token"},
		{"carol as realtime", []string{"authorization", "Bearer " + apitest.Carol}, "jobs/realtime", codes.OK, ""},
		{"carol as backfill", []string{"authorization", "Bearer " + apitest.Carol}, "jobs/backfill", codes.PermissionDenied, `the client carol may not use the class "backfill"`},
		{"another scheme", []string{"authorization", "Basic " + apitest.Alice}, "default", codes.Unauthenticated, "missing client token"},
		{"another field", []string{"x-token", apitest.Alice}, "default", codes.Unauthenticated, "missing client token"},
		{"two", []string{"authorization", "Bearer " + apitest.Wrong, "authorization", "Bearer " + apitest.Alice}, "default", codes.Unauthenticated, "missing client token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var header metadata.MD
			policy, class, _ := strings.Cut(tt.policy, "/")
			_, err := client.Check(with(tt.fields...), &weirv1.CheckRequest{Policy: policy, Class: class, Key: "k"}, grpc.Header(&header))
			wantCode(t, err, tt.code, tt.part)
			if got := header.Get("www-authenticate"); (tt.code == codes.Unauthenticated) != (len(got) == 1) {
				t.Errorf("www-authenticate %q", got)
			}
		})
	}
}

func TestReservationsHaveOwners(t *testing.T) {
	w := newWorld(t, nil)
	w.state.Authenticator = apitest.Authenticator(t)
	client := w.limiter(t)
	alice, bob := with("authorization", "Bearer "+apitest.Alice), with("authorization", "Bearer "+apitest.Bob)
	held, err := client.Reserve(alice, &weirv1.ReserveRequest{Policy: "default", Key: "k"})
	must(t, err)
	_, err = client.Cancel(bob, &weirv1.CancelRequest{Id: held.Id})
	wantCode(t, err, codes.InvalidArgument, "no reservation of this client")
	_, err = client.Cancel(alice, &weirv1.CancelRequest{Id: held.Id})
	must(t, err)
}

// A caller with too many wrong tokens is throttled, and gets the time to wait in all three ways.
func TestThrottle(t *testing.T) {
	w := newWorld(t, nil)
	w.state.Authenticator = apitest.Authenticator(t)
	client := w.limiter(t)
	ctx := with("authorization", "Bearer "+apitest.Wrong)
	var (
		trailer metadata.MD
		err     = status.Error(codes.Unauthenticated, "")
	)
	for tries := 0; status.Code(err) == codes.Unauthenticated; tries++ { // more than 20 if it takes long
		_, err = client.Check(ctx, &weirv1.CheckRequest{Policy: "default", Key: "k"}, grpc.Trailer(&trailer))
		if refused := status.Code(err) != codes.Unauthenticated; refused && tries < 20 || tries > 1000 {
			t.Fatalf("try %d: %v", tries, err)
		}
	}
	wantCode(t, err, codes.ResourceExhausted, "too many wrong tokens came from this address")
	refusal := status.Convert(err)
	details := refusal.Details()
	if len(details) != 2 || len(trailer.Get("grpc-retry-pushback-ms")) != 1 {
		t.Fatalf("details %v, trailer %v", details, trailer)
	}
	want := &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
		Subject: "clientip:127.0.0.1", Description: "too many wrong tokens came from this address", QuotaId: "failed-logins", QuotaValue: 20,
	}}}
	if diff := cmp.Diff(want, details[0], protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	info, _ := details[1].(*errdetails.RetryInfo)
	wait := info.GetRetryDelay().AsDuration() // one more is tried every 3 s
	ms, err := strconv.ParseInt(trailer.Get("grpc-retry-pushback-ms")[0], 10, 64)
	if wait <= 0 || wait > 3*time.Second || err != nil || ms != ruleset.Millis(wait) {
		t.Errorf("RetryInfo says %v, the trailer %d ms, %v", wait, ms, err)
	}
	if n := proto.Size(refusal.Proto()); n > 4<<10 {
		t.Errorf("details have %d bytes", n)
	}
}

// A refusal is an answer like others, without details.
func TestRefusedIsNoError(t *testing.T) {
	w := newWorld(t, nil)
	client := w.limiter(t)
	var trailer metadata.MD
	got, err := client.Check(context.Background(), &weirv1.CheckRequest{Policy: "default", Key: "k", Cost: proto.Int64(101)}, grpc.Trailer(&trailer))
	must(t, err)
	if got.Allowed || got.Reason != "too_costly" || len(trailer) > 0 {
		t.Errorf("%v, trailer %v", got, trailer)
	}
	if len(w.records) != 1 || w.records[0].Reason.String() != "too_costly" {
		t.Errorf("observed %v", w.records)
	}
}

// What is refused because the store does not answer is decided, too.
func TestStoreDown(t *testing.T) {
	w := newWorld(t, apitest.Always{Decision: weir.Decision{Reason: weir.StoreDown, RetryAfter: time.Second}})
	client := w.limiter(t)
	var trailer metadata.MD
	got, err := client.Check(context.Background(), &weirv1.CheckRequest{Policy: "default", Key: "k"}, grpc.Trailer(&trailer))
	must(t, err)
	if got.Allowed || got.Reason != "store_down" || got.RetryAfterMs != 1000 || len(trailer) > 0 {
		t.Errorf("%v, trailer %v", got, trailer)
	}
	if len(w.records) != 1 || w.records[0].Reason != weir.StoreDown {
		t.Errorf("observed %v", w.records)
	}
}

// panicking is a service that fails at once.
type panicking struct {
	weirv1.UnimplementedLimiterServiceServer
	with any
}

func (p *panicking) Check(context.Context, *weirv1.CheckRequest) (*weirv1.CheckResponse, error) {
	if err, ok := p.with.(error); ok {
		return nil, err
	}
	panic(p.with)
}

func TestMistakes(t *testing.T) {
	for _, tt := range []struct {
		with any
		code codes.Code
		part string
	}{
		{"the secret", codes.Internal, "the daemon made a mistake"},
		{ruleset.ErrGone, codes.Internal, "the daemon made a mistake"},
		{status.Error(codes.Aborted, "so it is"), codes.Aborted, "so it is"},
	} {
		w := newWorld(t, nil)
		w.cfg.Services[0].Server = &panicking{with: tt.with}
		client := w.limiter(t)
		for range 2 { // it goes on
			_, err := client.Check(context.Background(), &weirv1.CheckRequest{})
			wantCode(t, err, tt.code, tt.part)
			if strings.Contains(err.Error(), "secret") {
				t.Error(err)
			}
		}
	}
}
