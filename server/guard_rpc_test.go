package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/gen/weir/v1/weirv1connect"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/store/redisstore"
)

// guardCaller calls weir.v1.GuardService over one of the protocols.
type guardCaller interface {
	Admit(context.Context, *weirv1.AdmitRequest) (*weirv1.AdmitResponse, error)
	Finish(context.Context, *weirv1.FinishRequest) (*weirv1.FinishResponse, error)
	Quotas(context.Context, *weirv1.QuotasRequest) (*weirv1.QuotasResponse, error)
}

// overGRPC is grpc-go's client without options.
type overGRPC struct{ weirv1.GuardServiceClient }

func (c overGRPC) Admit(ctx context.Context, r *weirv1.AdmitRequest) (*weirv1.AdmitResponse, error) {
	return c.GuardServiceClient.Admit(ctx, r)
}

func (c overGRPC) Finish(ctx context.Context, r *weirv1.FinishRequest) (*weirv1.FinishResponse, error) {
	return c.GuardServiceClient.Finish(ctx, r)
}

func (c overGRPC) Quotas(ctx context.Context, r *weirv1.QuotasRequest) (*weirv1.QuotasResponse, error) {
	return c.GuardServiceClient.Quotas(ctx, r)
}

// overJSON is POST /v1/guard.
type overJSON struct {
	client *http.Client
	url    string
	token  string
}

func (c overJSON) Admit(_ context.Context, r *weirv1.AdmitRequest) (*weirv1.AdmitResponse, error) {
	out := &weirv1.AdmitResponse{}
	return out, c.call("/v1/guard", map[string]any{
		"method": r.Method, "path": r.Path, "address": r.Address, "principal": r.Principal, "plan": r.Plan, "api_key": r.ApiKey, "cost": r.Cost, "attributes": r.Attributes,
	}, out)
}

func (c overJSON) Finish(_ context.Context, r *weirv1.FinishRequest) (*weirv1.FinishResponse, error) {
	body := map[string]any{"ticket": r.Ticket, "failed": r.Failed}
	if r.Cost != nil {
		body["cost"] = *r.Cost
	}
	out := &weirv1.FinishResponse{}
	return out, c.call("/v1/guard/finish", body, out)
}

func (c overJSON) Quotas(_ context.Context, r *weirv1.QuotasRequest) (*weirv1.QuotasResponse, error) {
	out := &weirv1.QuotasResponse{}
	return out, c.call("/v1/guard/quotas", map[string]any{"subject": r.Subject, "plan": r.Plan, "method": r.Method, "path": r.Path}, out)
}

// call posts JSON. Its error is the problem's status and text.
func (c overJSON) call(path string, body map[string]any, out proto.Message) error {
	if m, ok := body["attributes"].(map[string]string); ok && m == nil {
		delete(body, "attributes")
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodPost, c.url+path, strings.NewReader(string(text)))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", c.token)
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%d: %s", resp.StatusCode, reply)
	}
	return protojson.Unmarshal(reply, out)
}

// guardCallers returns a client of each protocol.
func guardCallers(t *testing.T, r *running) map[string]guardCaller {
	t.Helper()
	client := newClient(t)
	return map[string]guardCaller{
		"json":    overJSON{client: client, url: r.url},
		"connect": weirv1connect.NewGuardServiceClient(client, r.url),
		"grpc":    overGRPC{weirv1.NewGuardServiceClient(dialGRPC(t, r, nil))},
	}
}

// problemOf returns the text of an error, and its code where protocols have the same.
func problemOf(err error) string {
	if err == nil {
		return ""
	}
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	if bad := new(connect.Error); asConnect(err, &bad) {
		return bad.Message()
	}
	return strings.ReplaceAll(err.Error(), `\"`, `"`)
}

func asConnect(err error, bad **connect.Error) bool {
	found, ok := err.(*connect.Error) //nolint:errorlint // connect's clients return it as it is
	if ok {
		*bad = found
	}
	return ok
}

// rpcGuard is the guard of the tests below.
func rpcGuard() *Guard {
	g := loopbackGuard(
		guard.Endpoint{Pattern: "POST /login", Name: "login", Limits: hourly(3), Count: guard.CountFailures},
		guard.Endpoint{Pattern: "/search", Name: "search", Limits: hourly(10), Cost: 4, Settle: true},
		guard.Endpoint{Pattern: "/status", Disabled: true},
		guard.Endpoint{Pattern: "/streams", Name: "streams", Limits: []ruleset.Limit{{Limit: hourly(1)[0].Limit, By: "stream_type", Hidden: true}}},
		guard.Endpoint{Pattern: "eth_*", Name: "eth", Limits: hourly(5)},
	)
	g.BeforeAuth.PerIP = hourly(100)
	g.Exemptions = []guard.Exemption{{Subject: "user:cron", Endpoints: []string{"*"}, Until: time.Now().Add(time.Hour)}}
	return g
}

// Every protocol decides alike.
func TestGuardRPC(t *testing.T) {
	for _, name := range []string{"json", "connect", "grpc"} {
		t.Run(name, func(t *testing.T) {
			srv := run(t, Config{Limiter: frozenTable(t), GRPC: Listener{Address: "127.0.0.1:0"}, Live: Live{Guard: rpcGuard()}})
			c := guardCallers(t, srv)[name]
			admit := func(r *weirv1.AdmitRequest) *weirv1.AdmitResponse {
				t.Helper()
				out, err := c.Admit(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			for i, tt := range []struct {
				request *weirv1.AdmitRequest
				want    *weirv1.AdmitResponse
			}{
				{
					&weirv1.AdmitRequest{Method: "GET", Path: "/a?x=1", Address: "192.0.2.1"},
					&weirv1.AdmitResponse{Allowed: true, Policy: "guard.default", Limit: 3, Remaining: 2, ResetAfterMs: 3600000, Reason: "admitted", Cause: "admitted", SubjectKind: "ip"},
				},
				{
					&weirv1.AdmitRequest{Method: "GET", Path: "/b", Address: "192.0.2.1", Cost: 3},
					&weirv1.AdmitResponse{
						Policy: "guard.default", LimitedBy: "guard.default", Limit: 3, Remaining: 2, RetryAfterMs: 3600000, ResetAfterMs: 3600000,
						Reason: "exhausted", Cause: "limit", SubjectKind: "ip",
					},
				},
				{
					&weirv1.AdmitRequest{Path: "eth_call", Principal: "alice", Plan: "pro"},
					&weirv1.AdmitResponse{Allowed: true, Policy: "eth", Limit: 10, Remaining: 9, ResetAfterMs: 1800000, Reason: "admitted", Cause: "admitted", SubjectKind: "user"},
				},
				{
					&weirv1.AdmitRequest{Path: "eth_call", Address: "192.0.2.1", ApiKey: "mobile-key"},
					&weirv1.AdmitResponse{Allowed: true, Policy: "eth", Limit: 10, Remaining: 9, ResetAfterMs: 1800000, Reason: "admitted", Cause: "admitted", SubjectKind: "key"},
				},
				{
					&weirv1.AdmitRequest{Path: "eth_call", ApiKey: "made-up"},
					&weirv1.AdmitResponse{Allowed: true, Policy: "eth", Limit: 5, Remaining: 4, ResetAfterMs: 3600000, Reason: "admitted", Cause: "admitted", SubjectKind: "unknown"},
				},
				{
					&weirv1.AdmitRequest{Path: "/status", Address: "2001:db8::1"},
					&weirv1.AdmitResponse{Allowed: true, Policy: "status", Reason: "admitted", Cause: "admitted", SubjectKind: "ip"},
				},
				{
					&weirv1.AdmitRequest{Path: "/a", Address: "192.0.2.1", Principal: "cron"},
					&weirv1.AdmitResponse{Allowed: true, Policy: "guard.default", Reason: "admitted", Cause: "admitted", SubjectKind: "user", Exempt: true},
				},
				{
					&weirv1.AdmitRequest{Path: "/streams", Principal: "bob", Attributes: map[string]string{"stream_type": "space"}},
					&weirv1.AdmitResponse{
						Allowed: true, Policy: "streams", Limit: 1, ResetAfterMs: 3600000, Reason: "admitted", Cause: "admitted", SubjectKind: "user", Hidden: true,
					},
				},
				{
					&weirv1.AdmitRequest{Path: "/streams", Principal: "carol", Attributes: map[string]string{"stream_type": "space"}},
					&weirv1.AdmitResponse{
						Policy: "streams", LimitedBy: "streams", Limit: 1, RetryAfterMs: 3600000, ResetAfterMs: 3600000, Reason: "exhausted", Cause: "limit", SubjectKind: "user", Hidden: true,
					},
				},
			} {
				if got := admit(tt.request); !proto.Equal(got, tt.want) {
					t.Errorf("request %d: %v\nwant %v", i, got, tt.want)
				}
			}

			login := &weirv1.AdmitRequest{Method: "POST", Path: "/login", Address: "192.0.2.9"}
			var tickets []string
			for range 3 {
				got := admit(login)
				if !got.Allowed || got.Ticket == "" || got.ExpiresInMs != 60000 {
					t.Fatalf("%v", got)
				}
				tickets = append(tickets, got.Ticket)
			}
			if got := admit(login); got.Allowed || got.Ticket != "" {
				t.Errorf("a fourth login while three are open: %v", got)
			}
			finish := func(r *weirv1.FinishRequest, refunded, overrun int64) {
				t.Helper()
				if got, err := c.Finish(t.Context(), r); err != nil || got.Refunded != refunded || got.Overrun != overrun || got.Late {
					t.Errorf("%v, %v, want %d and %d", got, err, refunded, overrun)
				}
			}
			finish(&weirv1.FinishRequest{Ticket: tickets[0], Failed: true}, 0, 0)
			finish(&weirv1.FinishRequest{Ticket: tickets[1]}, 1, 0)
			finish(&weirv1.FinishRequest{Ticket: tickets[1], Failed: true}, 1, 0) // again: the first answer
			if got := admit(login); !got.Allowed || got.Remaining != 0 {
				t.Errorf("after one of three succeeded: %v", got)
			}
			search := admit(&weirv1.AdmitRequest{Path: "/search", Address: "192.0.2.9"})
			if !search.Allowed || search.Remaining != 6 {
				t.Fatalf("%v", search)
			}
			finish(&weirv1.FinishRequest{Ticket: search.Ticket, Cost: proto.Int64(1)}, 3, 0)

			quotas, err := c.Quotas(t.Context(), &weirv1.QuotasRequest{Subject: "ip:192.0.2.9", Path: "/search"})
			want := &weirv1.QuotasResponse{Quotas: []*weirv1.Quota{{Policy: "search", Name: "search", Limit: 10, Remaining: 9, ResetAfterMs: 3600000}}}
			if err != nil || !proto.Equal(quotas, want) {
				t.Errorf("%v, %v, want %v", quotas, err, want)
			}
			if all, err := c.Quotas(t.Context(), &weirv1.QuotasRequest{Subject: "user:new", Plan: "pro"}); err != nil || len(all.Quotas) != 4 || all.Quotas[0].Remaining != 6 {
				t.Errorf("%v, %v", all, err)
			}

			for text, ask := range map[string]func() error{
				`"path" is missing`: func() error { _, err := c.Admit(t.Context(), &weirv1.AdmitRequest{}); return err },
				`"path" is no path`: func() error { _, err := c.Admit(t.Context(), &weirv1.AdmitRequest{Path: "/%zz"}); return err },
				`"address" must be an IP address without a port`: func() error {
					_, err := c.Admit(t.Context(), &weirv1.AdmitRequest{Path: "/a", Address: "192.0.2.1:80"})
					return err
				},
				`"plan" is that of a principal`: func() error {
					_, err := c.Admit(t.Context(), &weirv1.AdmitRequest{Path: "/a", Plan: "pro"})
					return err
				},
				`"ticket" is missing`:                  func() error { _, err := c.Finish(t.Context(), &weirv1.FinishRequest{}); return err },
				`"ticket" is no ticket of this client`: func() error { _, err := c.Finish(t.Context(), &weirv1.FinishRequest{Ticket: "x"}); return err },
				`"subject" is missing`:                 func() error { _, err := c.Quotas(t.Context(), &weirv1.QuotasRequest{}); return err },
			} {
				if got := problemOf(ask()); !strings.Contains(got, text) {
					t.Errorf("the error is %q, want %q", got, text)
				}
			}
			if err := srv.Reload(t.Context(), Live{}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Admit(t.Context(), login); !strings.Contains(problemOf(err), "no guard is configured") {
				t.Errorf("without a guard: %v", err)
			}
		})
	}
}

// A client may use the guard unless it is restricted to something else; a ticket is its own.
func TestGuardGrants(t *testing.T) {
	token := func(name string) string { return strings.Repeat(name, 32) }
	client := func(name string, g Grants) Client {
		return Client{Name: name, Tokens: []secret.Secret{secret.New(token(name))}, Grants: g}
	}
	srv := run(t, Config{Limiter: frozenTable(t), Live: Live{Guard: rpcGuard(), Policies: []ruleset.Policy{onePolicy("api", 5)}, Clients: []Client{
		client("a", Grants{}), client("b", Grants{Policies: Patterns{"api"}}), client("c", Grants{Policies: Patterns{"api"}, Guard: identity.Granted}),
		client("d", Grants{Guard: identity.Granted}), client("e", Grants{Guard: identity.Withheld}),
	}}})
	http := newClient(t)
	tickets := map[string]string{}
	for name, want := range map[string]struct{ guard, api bool }{"a": {true, true}, "b": {false, true}, "c": {true, true}, "d": {true, false}, "e": {false, true}} {
		c := overJSON{http, srv.url, "Bearer " + token(name)}
		got, err := c.Admit(t.Context(), &weirv1.AdmitRequest{Method: "POST", Path: "/login", Principal: name})
		if (err == nil) != want.guard || err != nil && !strings.Contains(err.Error(), "403: ") {
			t.Errorf("%s and the guard: %v", name, err)
		}
		tickets[name] = got.GetTicket()
		err = c.call("/v1/check", map[string]any{"policy": "api", "key": name}, &weirv1.CheckResponse{})
		if (err == nil) != want.api {
			t.Errorf("%s and the policy: %v", name, err)
		}
	}
	if _, err := (overJSON{http, srv.url, "Bearer " + token("d")}).Finish(t.Context(), &weirv1.FinishRequest{Ticket: tickets["a"]}); err == nil {
		t.Error("d finished a request of a")
	}
	if _, err := (overJSON{http, srv.url, "Bearer " + token("a")}).Finish(t.Context(), &weirv1.FinishRequest{Ticket: tickets["a"]}); err != nil {
		t.Error(err)
	}
}

// Two daemons on one Redis share counts and penalties: one that begins on the first reduces the rates on the
// second.
func TestGuardShared(t *testing.T) {
	redis := redistest.Start(t)
	g := loopbackGuard(
		guard.Endpoint{Pattern: "/a", Name: "a", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 2, Per: weir.Every(time.Hour)}}}},
		guard.Endpoint{Pattern: "/b", Name: "b", Limits: hourly(10_000)},
	)
	g.BeforeAuth = guard.BeforeAuth{}
	g.Penalties = &guard.Penalties{After: 2, Interval: time.Millisecond, Multiplier: 0.5}
	var nodes []overJSON
	for range 2 {
		store, err := redisstore.New(t.Context(), redisstore.Config{
			Redis:   redisstore.Server{Addrs: []string{redis.Addr()}, Timeout: 5 * time.Second, DialTimeout: 5 * time.Second},
			Timeout: 10 * time.Second, // the test is not about a slow machine
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		srv := run(t, Config{Limiter: store, Backend: "redis", Live: Live{Guard: g}})
		nodes = append(nodes, overJSON{client: newClient(t), url: srv.url})
	}
	admitAt := func(node int, path, principal string) *weirv1.AdmitResponse {
		t.Helper()
		out, err := nodes[node].Admit(t.Context(), &weirv1.AdmitRequest{Path: path, Principal: principal})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	admit := func(node int, principal string) *weirv1.AdmitResponse {
		t.Helper()
		return admitAt(node, "/a", principal)
	}
	for i, node := range []int{0, 1} {
		if got := admit(node, "alice"); !got.Allowed || got.Remaining != int64(1-i) {
			t.Errorf("node %d: %v", node, got)
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for !admit(0, "alice").Penalized {
		if time.Now().After(deadline) {
			t.Fatal("no penalty began")
		}
		time.Sleep(5 * time.Millisecond) // longer than the interval
	}
	// The second node has refused nothing, so it has to look the penalty up again.
	for !admitAt(1, "/b", "alice").Penalized { // within a second
		if time.Now().After(deadline) {
			t.Fatal("the penalty does not apply on the second node")
		}
		time.Sleep(20 * time.Millisecond)
	}
	penalized, free := admit(1, "alice"), admit(1, "bob")
	if penalized.Allowed || penalized.RetryAfterMs <= 30*60*1000 || penalized.RetryAfterMs > 60*60*1000 {
		t.Errorf("1 per 2 h would be due within an hour: %v", penalized)
	}
	if free.Penalized || !free.Allowed {
		t.Errorf("bob: %v", free)
	}
}
