package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/ruleset"
)

// dialGRPC connects to a server's gRPC listener, with TLS if config is not nil.
func dialGRPC(t *testing.T, r *running, config *tls.Config) *grpc.ClientConn {
	t.Helper()
	secure := insecure.NewCredentials()
	if config != nil {
		secure = credentials.NewTLS(config)
	}
	address := r.bound.GRPC.String()
	if r.bound.GRPC.Network() == "unix" {
		address = "unix:" + address
	} else {
		address = "passthrough:///" + address
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(secure))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// checkAlice checks alice and returns what remains.
func checkAlice(t *testing.T, conn *grpc.ClientConn, cost int64) (int64, error) {
	t.Helper()
	got, err := weirv1.NewLimiterServiceClient(conn).Check(t.Context(), &weirv1.CheckRequest{Policy: "default", Key: "alice", Cost: proto.Int64(cost)})
	return got.GetRemaining(), err
}

// gRPC and HTTP count together, and a reload holds for both.
func TestGRPC(t *testing.T) {
	r := run(t, Config{Limiter: frozenTable(t), GRPC: Listener{Address: "127.0.0.1:0"}})
	conn := dialGRPC(t, r, nil)
	if left, err := checkAlice(t, conn, 30); err != nil || left != 70 {
		t.Errorf("%d left, error %v", left, err)
	}
	if a, _ := check(t, newClient(t), r.url, `{"policy":"default","key":"alice","cost":30}`); a.Remaining != 40 {
		t.Errorf("%d left", a.Remaining)
	}
	if err := r.Reload(t.Context(), Live{Policies: []ruleset.Policy{onePolicy("default", 50)}}); err != nil {
		t.Fatal(err)
	}
	if left, err := checkAlice(t, conn, 0); err != nil || left != 0 {
		t.Errorf("%d left, error %v", left, err)
	}
}

func TestGRPCHealth(t *testing.T) {
	r := run(t, Config{Limiter: frozenTable(t), GRPC: Listener{Address: "127.0.0.1:0"}})
	watch, err := grpc_health_v1.NewHealthClient(dialGRPC(t, r, nil)).Watch(context.Background(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []grpc_health_v1.HealthCheckResponse_ServingStatus{grpc_health_v1.HealthCheckResponse_SERVING, grpc_health_v1.HealthCheckResponse_NOT_SERVING} {
		got, err := watch.Recv()
		if err != nil || got.Status != want {
			t.Errorf("%v, error %v, want %v", got, err, want)
		}
		r.stop()
	}
	if err := <-r.done; err != nil {
		t.Error(err)
	}
}

func TestGRPCOverTLS(t *testing.T) {
	a := newAuthority(t)
	a.sign("localhost", 1)
	a.sign("checkout", 1)
	a.sign("unlisted", 1)
	r := run(t, Config{
		Limiter: frozenTable(t),
		GRPC:    Listener{Address: "127.0.0.1:0", TLS: &TLS{CertFile: a.file("localhost.pem"), KeyFile: a.file("localhost.key"), ClientCAFile: a.file("ca.pem")}},
		Live:    Live{Clients: []Client{{Name: "checkout", Certificate: "checkout"}}},
	})
	for _, tt := range []struct {
		name string
		code codes.Code
	}{{"checkout", codes.OK}, {"unlisted", codes.Unauthenticated}, {"", codes.Unauthenticated}} {
		config := a.client(tt.name).Transport.(*http.Transport).TLSClientConfig
		if _, err := checkAlice(t, dialGRPC(t, r, config), 1); status.Code(err) != tt.code {
			t.Errorf("%q: %v, want %v", tt.name, err, tt.code)
		}
	}
	config := a.client("checkout").Transport.(*http.Transport).TLSClientConfig
	config.NextProtos = []string{"http/1.1"}
	conn, err := tls.Dial("tcp", r.bound.GRPC.String(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("who does not speak HTTP/2 was answered")
	}
}

func TestGRPCOnASocket(t *testing.T) {
	r := run(t, Config{Limiter: frozenTable(t), GRPC: Listener{Address: "unix:" + t.TempDir() + "/grpc.sock"}})
	if _, err := checkAlice(t, dialGRPC(t, r, nil), 1); err != nil {
		t.Error(err)
	}
}

// Those who open connections and send nothing make way for those who call.
func TestGRPCNewcomers(t *testing.T) {
	r := run(t, Config{Limiter: frozenTable(t), GRPC: Listener{Address: "127.0.0.1:0"}, MaxConns: 2})
	first := dialGRPC(t, r, nil)
	if _, err := checkAlice(t, first, 1); err != nil {
		t.Fatal(err)
	}
	idle, err := net.Dial("tcp", r.bound.GRPC.String())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	second := dialGRPC(t, r, nil)
	for _, conn := range []*grpc.ClientConn{second, first} {
		if _, err := checkAlice(t, conn, 1); err != nil {
			t.Error(err)
		}
	}
}

// Listeners with the same configured address, such as port 0, have their own certificates.
func TestTLSOfEachListener(t *testing.T) {
	a := newAuthority(t)
	config := func(name string) *TLS {
		a.sign(name, 1)
		return &TLS{CertFile: a.file(name + ".pem"), KeyFile: a.file(name + ".key")}
	}
	r := run(t, Config{
		Limiter: frozenTable(t),
		HTTP:    Listener{Address: "127.0.0.1:0", TLS: config("http.example")},
		GRPC:    Listener{Address: "127.0.0.1:0", TLS: config("grpc.example")},
		RESP:    Listener{Address: "127.0.0.1:0", TLS: config("resp.example")},
		Admin:   Listener{Address: "127.0.0.1:0", TLS: config("admin.example")},
	})
	for name, at := range map[string]net.Addr{"http.example": r.bound.HTTP, "grpc.example": r.bound.GRPC, "resp.example": r.bound.RESP, "admin.example": r.bound.Admin} {
		client := a.client("").Transport.(*http.Transport).TLSClientConfig.Clone()
		conn, err := tls.Dial("tcp", at.String(), client)
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.ConnectionState().PeerCertificates[0].Subject.CommonName; got != name {
			t.Errorf("%s shows the certificate of %s", name, got)
		}
		conn.Close()
	}
}
