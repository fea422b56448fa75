package target

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// grpcDriver makes unary calls of gRPC.
type grpcDriver struct {
	plan   *plan // set by newGRPC, like dialer and conns
	dialer *dialer
	conns  []*grpc.ClientConn // shared by senders

	// Set by open.
	input protoreflect.MessageDescriptor
	fixed []byte // the message, if it is the same in every call

	next atomic.Uint64 // counts senders, to spread them
}

func newGRPC(p *plan, d *dialer) (*grpcDriver, error) {
	g := &grpcDriver{plan: p, dialer: d}
	for range min(p.Connections, maxShared) {
		// The address is not looked up here but by the dialer.
		conn, err := grpc.NewClient("passthrough:///"+p.address.hostPort(), g.options()...)
		if err != nil {
			return nil, errors.Join(err, g.close())
		}
		g.conns = append(g.conns, conn)
	}
	return g, nil
}

// reconnect is how soon a lost connection is tried again. By default grpc waits up
// to two minutes, in which a load test would see nothing but errors.
var reconnect = backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}

func (g *grpcDriver) options() []grpc.DialOption {
	security := insecure.NewCredentials()
	if g.plan.address.isTLS() {
		security = credentials.NewTLS(g.plan.tlsConfig())
	}
	return []grpc.DialOption{
		grpc.WithTransportCredentials(security),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return g.dialer.dial(ctx) }),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: g.plan.Timeout}),
		grpc.WithIdleTimeout(0),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithUserAgent("weir-load"),
	}
}

func (g *grpcDriver) close() error {
	var problems []error
	for _, conn := range g.conns {
		problems = append(problems, conn.Close())
	}
	return errors.Join(problems...)
}

// open probes before grpc connects, since grpc does not say why it could not.
func (g *grpcDriver) open(ctx context.Context) error {
	if err := g.dialer.probe(ctx); err != nil {
		return err
	}
	for _, conn := range g.conns {
		if err := ready(ctx, conn); err != nil {
			return err
		}
	}
	method, err := g.findMethod(ctx)
	if err != nil {
		return err
	}
	if method.IsStreamingClient() || method.IsStreamingServer() {
		return fmt.Errorf("method %s is a stream; only unary methods can be called", g.plan.Method)
	}
	g.input = method.Input()
	return g.prepare()
}

// prepare tries the message, and keeps it if it has no variables.
func (g *grpcDriver) prepare() error {
	message, err := g.encode(g.plan.body.text(newVars(g.plan.Seed, 0)))
	if err != nil {
		return fmt.Errorf("the Body is not a %s: %w", g.input.FullName(), err)
	}
	if _, fixed := g.plan.body.fixed(); fixed {
		g.fixed = message
	}
	return nil
}

// encode makes the message that a JSON text describes. It is never nil.
func (g *grpcDriver) encode(text string) ([]byte, error) {
	message := dynamicpb.NewMessage(g.input)
	if err := protojson.Unmarshal([]byte(text), message); err != nil {
		return nil, err
	}
	return proto.MarshalOptions{}.MarshalAppend([]byte{}, message)
}

// ready waits until a connection is up.
func ready(ctx context.Context, conn *grpc.ClientConn) error {
	for {
		conn.Connect()
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return errors.New("grpc could not connect, although the server speaks HTTP/2")
		}
		if !conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("grpc is still %v: %w", state, ctx.Err())
		}
	}
}

func (g *grpcDriver) sender(v *vars) sender {
	i := (g.next.Add(1) - 1) % uint64(len(g.conns))
	s := &grpcSender{driver: g, conn: g.conns[i], vars: v, method: "/" + g.plan.Method}
	s.options = []grpc.CallOption{
		grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(maxAnswer), grpc.Header(&s.header), grpc.Trailer(&s.trailer),
	}
	return s
}

// grpcSender makes one call after the other.
type grpcSender struct {
	driver  *grpcDriver // set by sender, like the next four
	conn    *grpc.ClientConn
	vars    *vars
	method  string
	options []grpc.CallOption

	// What the last call brought. Both are empty if the error was made here, not by
	// the server.
	header, trailer metadata.MD
}

func (s *grpcSender) send(ctx context.Context) Result {
	message, err := s.message()
	if err != nil {
		return failed(fmt.Errorf("%w: %w", errBadRequest, err))
	}
	s.header, s.trailer = nil, nil
	var size int
	err = s.conn.Invoke(s.withMetadata(ctx), s.method, message, &size, s.options...)
	if err != nil {
		return s.judge(ctx, err)
	}
	return Result{OK: true, Code: codes.OK.String(), Bytes: size}
}

func (s *grpcSender) message() ([]byte, error) {
	if s.driver.fixed != nil {
		return s.driver.fixed, nil
	}
	return s.driver.encode(s.driver.plan.body.text(s.vars))
}

func (s *grpcSender) withMetadata(ctx context.Context) context.Context {
	if len(s.driver.plan.headers) == 0 {
		return ctx
	}
	md := metadata.MD{}
	for _, h := range s.driver.plan.headers {
		md.Append(strings.ToLower(h.name), h.value.text(s.vars))
	}
	return metadata.NewOutgoingContext(ctx, md)
}

// judge tells a server that says no from one that says nothing: grpc makes both a
// status. When the time is up, whether the server or we notice first is chance.
func (s *grpcSender) judge(ctx context.Context, err error) Result {
	st := status.Convert(err)
	answered := len(s.header)+len(s.trailer) > 0
	switch {
	case st.Code() == codes.DeadlineExceeded && (ended(ctx) || !answered):
		return Result{Code: codeTimeout, Err: err}
	case answered:
		return Result{Code: st.Code().String()}
	case st.Code() == codes.Canceled: // by Close; if it was ctx, Call says so
		return Result{Code: codeClosed, Err: err}
	case st.Code() == codes.ResourceExhausted: // MaxCallRecvMsgSize
		return Result{Code: codeTooLarge, Err: fmt.Errorf("%w: %w", errTooLarge, err)}
	}
	r := failed(err)
	if r.Code == codeError && st.Code() == codes.Unavailable {
		r.Code = codeUnavailable
	}
	return r
}

// rawCodec sends a message that is encoded already, and takes from the answer its
// size.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*int) = data.Len()
	return nil
}
