package weirconnect

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newTable(t testing.TB) *memstore.Table {
	t.Helper()
	table, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func newGuard(t testing.TB, c guard.Config) *guard.Guard {
	t.Helper()
	g, err := guard.New(newTable(t), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// limits are of n calls per hour, so that nothing comes back during a test.
func limits(n int64) []ruleset.Limit { return []ruleset.Limit{{Limit: perHour(n)}} }

func perHour(n int64) weir.Limit { return weir.Limit{Rate: n, Per: weir.Every(time.Hour)} }

type text = wrapperspb.StringValue

const prefix = "/test.v1.Test/"

// newHandler returns a service that echoes. The message "fail CODE" ends a unary call with an error, and
// "panic" with a panic.
func newHandler(options ...connect.HandlerOption) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(prefix+"Unary", connect.NewUnaryHandler(prefix+"Unary",
		func(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
			if name, fails := strings.CutPrefix(r.Msg.Value, "fail "); fails {
				var code connect.Code
				if err := code.UnmarshalText([]byte(name)); err != nil {
					return nil, err
				}
				return nil, connect.NewError(code, errors.New("as requested"))
			}
			if r.Msg.Value == "panic" {
				panic(http.ErrAbortHandler)
			}
			return connect.NewResponse(r.Msg), nil
		}, options...))
	mux.Handle(prefix+"Client", connect.NewClientStreamHandler(prefix+"Client",
		func(_ context.Context, s *connect.ClientStream[text]) (*connect.Response[text], error) {
			n := 0
			for s.Receive() {
				n++
			}
			return connect.NewResponse(wrapperspb.String(fmt.Sprint(n))), nil // it ignores s.Err
		}, options...))
	mux.Handle(prefix+"Server", connect.NewServerStreamHandler(prefix+"Server",
		func(_ context.Context, r *connect.Request[text], s *connect.ServerStream[text]) error {
			for range 3 {
				if err := s.Send(r.Msg); err != nil {
					return err
				}
			}
			return nil
		}, options...))
	mux.Handle(prefix+"Bidi", connect.NewBidiStreamHandler(prefix+"Bidi",
		func(_ context.Context, s *connect.BidiStream[text, text]) error {
			for {
				m, err := s.Receive()
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err != nil {
					return err
				}
				if err := s.Send(m); err != nil {
					return err
				}
			}
		}, options...))
	return mux
}

// serve returns the address of a server for HTTP/1.1 and HTTP/2 without TLS.
func serve(t testing.TB, h http.Handler) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// wire is a way to call.
type wire struct {
	name    string
	http2   bool
	options []connect.ClientOption
}

var wires = []wire{
	{"connect over HTTP/1.1", false, nil},
	{"connect over HTTP/2", true, nil},
	{"grpc", true, []connect.ClientOption{connect.WithGRPC()}},
	{"grpc-web over HTTP/1.1", false, []connect.ClientOption{connect.WithGRPCWeb()}},
}

func (w wire) grpc() bool { return strings.HasPrefix(w.name, "grpc") }

func (w wire) client(t testing.TB, url, procedure string) *connect.Client[text, text] {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{}, DialContext: (&net.Dialer{}).DialContext}
	transport.Protocols.SetHTTP1(!w.http2)
	transport.Protocols.SetUnencryptedHTTP2(w.http2)
	t.Cleanup(transport.CloseIdleConnections)
	return connect.NewClient[text, text](&http.Client{Transport: transport}, url+prefix+procedure, w.options...)
}

func ask(value string, fields ...string) *connect.Request[text] {
	r := connect.NewRequest(wrapperspb.String(value))
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ":")
		r.Header().Set(name, value)
	}
	return r
}

// refusal is what a caller was told.
type refusal struct {
	code    connect.Code
	retry   time.Duration // of RetryInfo; 0 if there is none
	quota   *errdetails.QuotaFailure_Violation
	meta    http.Header
	message string
}

func refusalOf(t testing.TB, err error) (r refusal) {
	t.Helper()
	var e *connect.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is no refusal", err)
	}
	r.code, r.meta, r.message = e.Code(), e.Meta(), e.Message()
	for _, d := range e.Details() {
		m, err := d.Value()
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.(type) {
		case *errdetails.RetryInfo:
			r.retry = m.RetryDelay.AsDuration()
		case *errdetails.QuotaFailure:
			if len(m.Violations) != 1 {
				t.Fatalf("%v", m)
			}
			r.quota = m.Violations[0]
		}
	}
	return r
}
