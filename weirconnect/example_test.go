package weirconnect_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/weirconnect"
	"github.com/weirlimit/weir/weirhttp"
)

type text = wrapperspb.StringValue

const createStream = "/river.StreamService/CreateStream"

// newService returns a service as generated code makes it, and a client of it.
func newService(i connect.Interceptor) (server *httptest.Server, client *connect.Client[text, text]) {
	mux := http.NewServeMux()
	mux.Handle(createStream, connect.NewUnaryHandler(createStream,
		func(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
			return connect.NewResponse(r.Msg), nil
		}, connect.WithInterceptors(i)))
	server = httptest.NewServer(mux)
	return server, connect.NewClient[text, text](server.Client(), server.URL+createStream)
}

// show calls n times and prints what a client gets.
func show(client *connect.Client[text, text], n int) {
	for range n {
		res, err := client.CallUnary(context.Background(), connect.NewRequest(wrapperspb.String("signed by alice")))
		if err == nil {
			fmt.Println("ok,", res.Header().Get("RateLimit"))
			continue
		}
		fmt.Println(err)
		var refused *connect.Error
		if !errors.As(err, &refused) {
			return
		}
		for _, d := range refused.Details() {
			switch m, _ := d.Value(); m := m.(type) {
			case *errdetails.QuotaFailure:
				fmt.Printf("quota %s: %d per %q\n", m.Violations[0].QuotaId, m.Violations[0].QuotaValue, m.Violations[0].Subject)
			case *errdetails.RetryInfo:
				fmt.Println("retry after", m.RetryDelay.AsDuration())
			}
		}
	}
}

// stopped is a clock that stands still, so that the output is the same every time.
func stopped() weir.Instant { return 1_800_000_000_000_000_000 }

// Two streams per minute for each creator, whom the signature of the message proves.
func ExampleNew() {
	table := weir.Must(memstore.New(memstore.Config{Now: stopped}))
	g := weir.Must(guard.New(table, guard.Config{
		BeforeAuth: guard.BeforeAuth{PerIP: []ruleset.Limit{{Limit: weir.PerMinute(300)}}},
		Endpoints: []guard.Endpoint{
			{Pattern: createStream, Name: "CreateStream", Limits: []ruleset.Limit{{Limit: weir.PerMinute(2)}}},
		},
	}))
	server, client := newService(weirconnect.New(g,
		weirconnect.Verify(func(_ context.Context, message any) (guard.Subject, bool) {
			creator, ok := strings.CutPrefix(message.(*text).Value, "signed by ")
			return guard.User(creator), ok // a real service verifies a signature
		})))
	defer server.Close()

	show(client, 3)
	// Output:
	// ok, "CreateStream";r=1
	// ok, "CreateStream";r=0;t=30
	// resource_exhausted: policy CreateStream is used up; retry after 30s
	// quota CreateStream: 2 per "user"
	// retry after 30s
}

// A limit for each address, without a Guard.
func ExampleLimit() {
	perIP := weir.Must(weir.NewPolicy("per-ip", weir.PerMinute(1)))
	table := weir.Must(memstore.New(memstore.Config{Now: stopped}))
	server, client := newService(weirconnect.Limit(table, weirconnect.By(perIP, weirhttp.ClientIP())))
	defer server.Close()

	show(client, 2)
	// Output:
	// ok, "per-ip";r=0;t=60
	// resource_exhausted: policy per-ip is used up; retry after 1m0s
	// quota per-ip: 1 per ""
	// retry after 1m0s
}

// Middleware that refuses calls before their bodies are read.
func ExampleRefuse() {
	table := weir.Must(memstore.New(memstore.Config{Now: stopped}))
	g := weir.Must(guard.New(table, guard.Config{
		Default: guard.Endpoint{Name: "api", Limits: []ruleset.Limit{{Limit: weir.PerMinute(1)}}},
	}))
	mux := http.NewServeMux()
	mux.Handle(createStream, connect.NewUnaryHandler(createStream,
		func(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
			return connect.NewResponse(r.Msg), nil
		}))
	server := httptest.NewServer(weirhttp.Guard(g, weirhttp.Refuse(weirconnect.Refuse()))(mux))
	defer server.Close()

	show(connect.NewClient[text, text](server.Client(), server.URL+createStream), 2)
	// Output:
	// ok, "api";r=0;t=60
	// resource_exhausted: policy api is used up; retry after 1m0s
	// quota api: 1 per "ip"
	// retry after 1m0s
}
