package weirgrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
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

// service echoes. The message "fail CODE" ends a call with an error.
type service struct{ calls atomic.Int64 }

func (s *service) unary(m *text) (*text, error) {
	s.calls.Add(1)
	if name, fails := strings.CutPrefix(m.Value, "fail "); fails {
		var code codes.Code
		if err := code.UnmarshalJSON([]byte(`"` + name + `"`)); err != nil {
			return nil, err
		}
		return nil, status.Error(code, "as requested")
	}
	return m, nil
}

// receive is a handler of client streams that ignores the error which ends them.
func (s *service) receive(ss grpc.ServerStream) error {
	for n := 0; ; n++ {
		if err := ss.RecvMsg(new(text)); err != nil {
			return ss.SendMsg(wrapperspb.String(fmt.Sprint(n)))
		}
	}
}

func (s *service) send(ss grpc.ServerStream) error {
	var m text
	if err := ss.RecvMsg(&m); err != nil {
		return err
	}
	if _, err := s.unary(&m); err != nil {
		return err
	}
	for range 3 {
		if err := ss.SendMsg(&m); err != nil {
			return err
		}
	}
	return nil
}

func (s *service) echo(ss grpc.ServerStream) error {
	for {
		var m text
		if err := ss.RecvMsg(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := ss.SendMsg(&m); err != nil {
			return err
		}
	}
}

func description(s *service) *grpc.ServiceDesc {
	handler := func(f func(grpc.ServerStream) error) grpc.StreamHandler {
		return func(_ any, ss grpc.ServerStream) error { return f(ss) }
	}
	return &grpc.ServiceDesc{
		ServiceName: "test.v1.Test", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Unary", Handler: func(_ any, ctx context.Context, decode func(any) error, i grpc.UnaryServerInterceptor) (any, error) {
			m := new(text)
			if err := decode(m); err != nil {
				return nil, err
			}
			call := func(_ context.Context, m any) (any, error) {
				res, err := s.unary(m.(*text))
				if res == nil {
					return nil, err
				}
				return res, err
			}
			if i == nil {
				return call(ctx, m)
			}
			return i(ctx, m, &grpc.UnaryServerInfo{FullMethod: prefix + "Unary"}, call)
		}}},
		Streams: []grpc.StreamDesc{
			{StreamName: "Client", Handler: handler(s.receive), ClientStreams: true},
			{StreamName: "Server", Handler: handler(s.send), ServerStreams: true},
			{StreamName: "Bidi", Handler: handler(s.echo), ClientStreams: true, ServerStreams: true},
		},
	}
}

// serve returns a connection to a server.
func serve(t testing.TB, u grpc.UnaryServerInterceptor, s grpc.StreamServerInterceptor, options ...grpc.DialOption) (*grpc.ClientConn, *service) {
	t.Helper()
	return serveTLS(t, u, s, insecure.NewCredentials(), insecure.NewCredentials(), options...)
}

func serveTLS(t testing.TB, u grpc.UnaryServerInterceptor, s grpc.StreamServerInterceptor, server, client credentials.TransportCredentials, options ...grpc.DialOption) (*grpc.ClientConn, *service) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(u), grpc.ChainStreamInterceptor(s), grpc.Creds(server))
	impl := &service{}
	srv.RegisterService(description(impl), impl)
	go srv.Serve(l)
	t.Cleanup(srv.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), append(options, grpc.WithTransportCredentials(client))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, impl
}

// guarded serves with a Guard.
func guarded(t testing.TB, g *guard.Guard, options ...Option) (*grpc.ClientConn, *service) {
	t.Helper()
	return serve(t, UnaryServer(g, options...), StreamServer(g, options...))
}

// reply is what a caller got.
type reply struct {
	header, trailer metadata.MD
	err             error
	code            codes.Code
	retry           time.Duration // of RetryInfo; 0 if there is none
	quota           *errdetails.QuotaFailure_Violation
	replies         int // of streams
}

func get(md metadata.MD, name string) string { return strings.Join(md.Get(name), "|") }

// call makes a unary call with metadata "name:value".
func call(t testing.TB, conn *grpc.ClientConn, message string, fields ...string) reply {
	t.Helper()
	ctx := t.Context()
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ":")
		ctx = metadata.AppendToOutgoingContext(ctx, name, value)
	}
	var r reply
	r.err = conn.Invoke(ctx, prefix+"Unary", wrapperspb.String(message), new(text), grpc.Header(&r.header), grpc.Trailer(&r.trailer))
	return r.explained(t)
}

func (r reply) explained(t testing.TB) reply {
	t.Helper()
	s := status.Convert(r.err)
	r.code = s.Code()
	for _, d := range s.Details() {
		switch m := d.(type) {
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

// open opens a stream, sends n messages and returns the number of replies.
func open(t testing.TB, conn *grpc.ClientConn, kind, message string, n int) reply {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: kind != "Server", ServerStreams: kind != "Client"}, prefix+kind)
	if err != nil {
		t.Fatal(err)
	}
	var r reply
	for range n {
		if err := s.SendMsg(wrapperspb.String(message)); err != nil {
			break // RecvMsg says why
		}
		if kind != "Bidi" {
			continue
		}
		if r.err = s.RecvMsg(new(text)); r.err != nil {
			break
		}
		r.replies++
	}
	_ = s.CloseSend()
	for r.err == nil {
		if r.err = s.RecvMsg(new(text)); r.err == nil {
			r.replies++
		}
		if kind == "Client" && r.err == nil {
			r.err = io.EOF
		}
	}
	r.header, _ = s.Header()
	r.trailer = s.Trailer()
	if errors.Is(r.err, io.EOF) {
		r.err = nil
	}
	return r.explained(t)
}
