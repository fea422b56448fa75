package target

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	grpcreflection "google.golang.org/grpc/reflection"
	reflectpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	alphapb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
)

const check = "grpc.health.v1.Health/Check"

// doctor is a health service whose answer the request selects.
type doctor struct {
	healthpb.UnimplementedHealthServer
	mu       sync.Mutex
	received []string
	ids      []string
	slow     chan struct{} // has something in it once a slow call came
}

func (d *doctor) Check(ctx context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	d.mu.Lock()
	d.received = append(d.received, r.GetService())
	d.ids = append(d.ids, md.Get("x-id")...)
	d.mu.Unlock()
	switch r.GetService() {
	case "busy":
		return nil, status.Error(codes.ResourceExhausted, "busy")
	case "unavailable":
		return nil, status.Error(codes.Unavailable, "unavailable")
	case "canceled":
		return nil, status.Error(codes.Canceled, "canceled")
	case "slow":
		select {
		case d.slow <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

// The ways to serve reflection.
func withBoth(s *grpc.Server) { grpcreflection.Register(s) }
func without(*grpc.Server)    {}
func withAlpha(s *grpc.Server) {
	alphapb.RegisterServerReflectionServer(s, grpcreflection.NewServer(grpcreflection.ServerOptions{Services: s}))
}

// serveGRPC starts a server. The function it returns stops it early.
func serveGRPC(t testing.TB, reflect func(*grpc.Server), options ...grpc.ServerOption) (*doctor, string, func()) {
	t.Helper()
	d := &doctor{slow: make(chan struct{}, 1)}
	s := grpc.NewServer(options...)
	healthpb.RegisterHealthServer(s, d)
	reflect(s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(l) }()
	stop := sync.OnceFunc(func() { s.Stop(); <-done })
	t.Cleanup(stop)
	return d, l.Addr().String(), stop
}

// healthDescriptors writes the descriptors of the health service to a file.
func healthDescriptors(t *testing.T) string {
	t.Helper()
	set := &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{
		protodesc.ToFileDescriptorProto(healthpb.File_grpc_health_v1_health_proto),
	}}
	data, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, data)
}

func writeFile(t *testing.T, data []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "set.pb")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestGRPC(t *testing.T) {
	for _, tt := range []struct {
		name        string
		reflect     func(*grpc.Server)
		descriptors string
	}{
		{"reflection", withBoth, ""},
		{"old reflection", withAlpha, ""},
		{"descriptors", without, healthDescriptors(t)},
		{"known to this program", without, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, addr, _ := serveGRPC(t, tt.reflect)
			target := open(t, Config{
				URL: "grpc://" + addr, Method: check, Descriptors: tt.descriptors, Connections: 6,
				Body: `{"service":"s{{seq}}w{{worker}}"}`, Headers: []string{"X-Id: {{seq}}"},
			})
			if len(d.received) > 0 {
				t.Fatalf("Open sent %q", d.received)
			}
			for worker := range 6 {
				r := target.Caller(worker).Call(context.Background(), 100)
				wantAnswer(t, r, true, "OK")
				if r.Bytes != 2 { // field 1, value 1
					t.Errorf("%d bytes", r.Bytes)
				}
			}
			if got := strings.Join(d.received, " "); got != "s100w0 s100w1 s100w2 s100w3 s100w4 s100w5" {
				t.Errorf("the server received %s", got)
			}
			if got := strings.Join(d.ids, " "); got != "100 100 100 100 100 100" {
				t.Errorf("the metadata is %s", got)
			}
		})
	}
}

func TestGRPCStatus(t *testing.T) {
	_, addr, _ := serveGRPC(t, withBoth)
	configFor := func(service string) Config {
		return Config{URL: "grpc://" + addr, Method: "/" + check, Body: `{"service":"` + service + `"}`}
	}
	wantAnswer(t, call(t, Config{URL: "grpc://" + addr, Method: check}), true, "OK")
	wantAnswer(t, call(t, configFor("busy")), false, "ResourceExhausted")
	wantAnswer(t, call(t, configFor("unavailable")), false, "Unavailable") // said by the server
	wantAnswer(t, call(t, configFor("canceled")), false, "Canceled")
	target := open(t, configFor("slow"))
	wantCode(t, impatient(target).Call(context.Background(), 0), "timeout")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	wantCode(t, target.Caller(0).Call(ctx, 0), "canceled")
}

func TestGRPCOverTLS(t *testing.T) {
	srv := httptest.NewTLSServer(nil) // for its certificate
	srv.Close()
	security := credentials.NewTLS(&tls.Config{Certificates: srv.TLS.Certificates})
	_, addr, _ := serveGRPC(t, withBoth, grpc.Creds(security))
	wantAnswer(t, call(t, Config{URL: "grpcs://" + addr, Method: check}), true, "OK")
	_, port, _ := net.SplitHostPort(addr)
	wantRefused(t, Config{URL: "grpcs://localhost:" + port, Method: check}, "grpcs://localhost:"+port, "not localhost")
	wantAnswer(t, call(t, Config{URL: "grpcs://localhost:" + port, Method: check, Insecure: true}), true, "OK")
	wantRefused(t, Config{URL: "grpc://" + addr, Method: check}, "does not speak HTTP/2")
}

func TestGRPCRefuses(t *testing.T) {
	_, addr, _ := serveGRPC(t, withBoth)
	_, dumb, _ := serveGRPC(t, without)
	at := func(addr string) Config { return Config{URL: "grpc://" + addr, Method: check} }
	with := func(change func(*Config)) Config {
		c := at(addr)
		change(&c)
		return c
	}
	wantRefused(t, at(refusing(t)), "connection refused")
	wantRefused(t, at(serveHTTP(t, false, h1, echo).Listener.Addr().String()), "does not speak HTTP/2")
	for _, unknown := range []string{"other.Service/Do", "grpc.health.v1.Health/Chekc", "grpc.health.v1.HealthCheckRequest/Do"} {
		c := at(dumb)
		c.Method = unknown
		wantRefused(t, c, "no reflection", "Descriptors")
	}
	other := serveHTTP(t, false, h2c, func(http.ResponseWriter, *http.Request) {}) // HTTP/2, but no gRPC
	wantRefused(t, at(other.Listener.Addr().String()), "reflection")
	wantRefused(t, with(func(c *Config) { c.Method = "grpc.health.v1.Health/Chekc" }), "no method grpc.health.v1.Health/Chekc", check)
	wantRefused(t, with(func(c *Config) { c.Method = "other.Service/Do" }), "no method other.Service/Do", check)
	wantRefused(t, with(func(c *Config) { c.Method = "grpc.health.v1.HealthCheckRequest/Do" }), "no method", check)
	wantRefused(t, with(func(c *Config) { c.Method = "grpc.health.v1.Health/Watch" }), "Health/Watch is a stream")
	wantRefused(t, with(func(c *Config) { c.Body = `{"servise":"x"}` }), "Body is not a grpc.health.v1.HealthCheckRequest", "servise")
	wantRefused(t, with(func(c *Config) { c.Body = `{"service":{{seq}}}` }), "Body is not a grpc.health.v1.HealthCheckRequest")
	wantRefused(t, with(func(c *Config) { c.Descriptors = filepath.Join(t.TempDir(), "none") }), "Descriptors", "no such file")
	wantRefused(t, with(func(c *Config) { c.Descriptors = writeFile(t, []byte("hello")) }), "no FileDescriptorSet", "protoc")
	wantRefused(t, with(func(c *Config) { c.Descriptors, c.Method = healthDescriptors(t), "a.B/C" }), "no method a.B/C", check)
}

// TestGRPCStops stops a server, and starts another in its place.
func TestGRPCStops(t *testing.T) {
	_, addr, stop := serveGRPC(t, withBoth)
	caller := open(t, Config{URL: "grpc://" + addr, Method: check}).Caller(0)
	wantAnswer(t, caller.Call(context.Background(), 0), true, "OK")
	stop()
	for r := range calls(caller) {
		if r.Code == "refused" {
			break
		}
		if r.Code != "closed" && r.Code != "reset" || r.Err == nil {
			t.Fatalf("got %+v, want closed or reset, and then refused", r)
		}
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal("the port is not free again:", err)
	}
	s := grpc.NewServer()
	healthpb.RegisterHealthServer(s, &doctor{})
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(l) }()
	defer func() { s.Stop(); <-done }()
	for r := range calls(caller) {
		if r.OK {
			return
		}
	}
	t.Error("the connection did not come back")
}

// calls calls again and again, for two seconds at most.
func calls(c *Caller) func(yield func(Result) bool) {
	return func(yield func(Result) bool) {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for range 400 {
			if !yield(c.Call(context.Background(), 0)) {
				return
			}
			<-tick.C
		}
	}
}

// TestGRPCCloseEndsCalls closes a target while a call waits.
func TestGRPCCloseEndsCalls(t *testing.T) {
	d, addr, _ := serveGRPC(t, withBoth)
	target := open(t, Config{URL: "grpc://" + addr, Method: check, Body: `{"service":"slow"}`})
	results := make(chan Result)
	caller := target.Caller(0)
	go func() { results <- caller.Call(context.Background(), 0) }()
	<-d.slow
	target.Close()
	wantCode(t, <-results, "closed")
	wantCode(t, caller.Call(context.Background(), 1), "closed")
}

// strange is a reflection service that says that a file needs another, and then
// sends something else, or nothing.
type strange struct {
	reflectpb.UnimplementedServerReflectionServer
	answer func(*reflectpb.ServerReflectionRequest) *reflectpb.ServerReflectionResponse
}

func (s strange) ServerReflectionInfo(stream reflectpb.ServerReflection_ServerReflectionInfoServer) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return nil
		}
		if err := stream.Send(s.answer(r)); err != nil {
			return nil
		}
	}
}

func fileAnswer(files ...*descriptorpb.FileDescriptorProto) *reflectpb.ServerReflectionResponse {
	var raw [][]byte
	for _, f := range files {
		b, _ := proto.Marshal(f)
		raw = append(raw, b)
	}
	return &reflectpb.ServerReflectionResponse{MessageResponse: &reflectpb.ServerReflectionResponse_FileDescriptorResponse{
		FileDescriptorResponse: &reflectpb.FileDescriptorResponse{FileDescriptorProto: raw},
	}}
}

func TestStrangeReflection(t *testing.T) {
	health := protodesc.ToFileDescriptorProto(healthpb.File_grpc_health_v1_health_proto)
	needy := proto.CloneOf(health)
	needy.Dependency = []string{"other.proto"}
	n := 0
	for _, tt := range []struct {
		name   string
		answer func(*reflectpb.ServerReflectionRequest) *reflectpb.ServerReflectionResponse
		parts  []string // none: it works
	}{
		{"imports one by one", func(r *reflectpb.ServerReflectionRequest) *reflectpb.ServerReflectionResponse {
			if r.GetFileByFilename() == "other.proto" {
				return fileAnswer(&descriptorpb.FileDescriptorProto{Name: proto.String("other.proto")})
			}
			return fileAnswer(needy)
		}, nil},
		{"never the import", func(*reflectpb.ServerReflectionRequest) *reflectpb.ServerReflectionResponse {
			return fileAnswer(needy)
		}, []string{`"other.proto"`, "did not come: the server sent something else"}},
		{"imports without end", func(*reflectpb.ServerReflectionRequest) *reflectpb.ServerReflectionResponse {
			var files []*descriptorpb.FileDescriptorProto
			for range 200 {
				files = append(files, &descriptorpb.FileDescriptorProto{
					Name: proto.String(strconv.Itoa(n)), Dependency: []string{strconv.Itoa(n + 1)},
				})
				n++
			}
			return fileAnswer(files...)
		}, []string{"more than 1000 files"}},
		{"an error", func(*reflectpb.ServerReflectionRequest) *reflectpb.ServerReflectionResponse {
			return &reflectpb.ServerReflectionResponse{MessageResponse: &reflectpb.ServerReflectionResponse_ErrorResponse{
				ErrorResponse: &reflectpb.ErrorResponse{ErrorCode: int32(codes.PermissionDenied), ErrorMessage: "no"},
			}}
		}, []string{"PermissionDenied", `"no"`}},
		{"nonsense", func(*reflectpb.ServerReflectionRequest) *reflectpb.ServerReflectionResponse {
			return &reflectpb.ServerReflectionResponse{}
		}, []string{"no method", "there are none"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, addr, _ := serveGRPC(t, func(s *grpc.Server) { reflectpb.RegisterServerReflectionServer(s, strange{answer: tt.answer}) })
			c := Config{URL: "grpc://" + addr, Method: check}
			if tt.parts == nil {
				wantAnswer(t, call(t, c), true, "OK")
				return
			}
			wantRefused(t, c, tt.parts...)
		})
	}
}

func BenchmarkGRPC(b *testing.B) {
	_, addr, _ := serveGRPC(b, withBoth)
	caller := open(b, Config{URL: "grpc://" + addr, Method: check}).Caller(0)
	b.ReportAllocs()
	for i := range b.N {
		if r := caller.Call(context.Background(), int64(i)); !r.OK {
			b.Fatalf("%+v", r)
		}
	}
}
