package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
)

// patience is how long a test waits for an answer that must come.
const patience = 20 * time.Second

// Connections that were answered without a token, and are silent then, lock nobody out: neither
// clients with a token nor health checks.
func TestUnprovenConnsLockNobodyOut(t *testing.T) {
	const most = 16
	secret := token("shop")
	r := run(t, Config{
		Limiter: frozenTable(t), MaxConns: most, GRPC: Listener{Address: "127.0.0.1:0"}, RESP: Listener{Address: "127.0.0.1:0"},
		Live: Live{Clients: []Client{{Name: "shop", Tokens: secret}}},
	})
	for _, tt := range []struct {
		name         string
		occupy, call func(token string) (closer io.Closer, answer string, err error)
	}{
		{"HTTP", r.overHTTP("GET /healthz HTTP/1.1"), r.overHTTP("POST /v1/check HTTP/1.1")},
		{"HTTP, refused", r.overHTTP("POST /v1/check HTTP/1.1"), r.overHTTP("GET /healthz HTTP/1.1")},
		{"gRPC", r.overGRPC(checkHealth), r.overGRPC(checkOnce)},
		{"gRPC, refused", r.overGRPC(checkOnce), r.overGRPC(checkHealth)},
		{"RESP", r.overRESP("PING"), r.overRESP("WEIR.CHECK default alice")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range most + 1 {
				conn, answer, err := tt.occupy("")
				if err != nil {
					t.Fatalf("%s: %v", answer, err)
				}
				defer conn.Close()
			}
			for range most { // proven, so each gets a slot
				conn, answer, err := tt.call(secret[0].Reveal())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if !strings.HasPrefix(answer, "OK") {
					t.Errorf("a client with a token gets %q", answer)
				}
			}
		})
	}
}

// overHTTP returns a function that sends a request on a new connection and keeps the connection.
func (r *running) overHTTP(line string) func(token string) (io.Closer, string, error) {
	return func(token string) (io.Closer, string, error) {
		conn, err := net.Dial("tcp", r.bound.HTTP.String())
		if err != nil {
			return nil, "", err
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(conn, "%s\r\nHost: localhost\r\nContent-Length: %d\r\n", line, len(body))
		if token != "" {
			fmt.Fprintf(conn, "Authorization: Bearer %s\r\n", token)
		}
		fmt.Fprintf(conn, "\r\n%s", body)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return conn, "", err
		}
		return conn, strings.TrimPrefix(resp.Status, "200 "), resp.Body.Close()
	}
}

// overRESP is overHTTP for a command.
func (r *running) overRESP(command string) func(token string) (io.Closer, string, error) {
	return func(token string) (io.Closer, string, error) {
		conn, err := net.Dial("tcp", r.bound.RESP.String())
		if err != nil {
			return nil, "", err
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		in := bufio.NewReader(conn)
		for _, line := range []string{"AUTH " + token, command} {
			if line == "AUTH " {
				continue
			}
			fmt.Fprintf(conn, "%s\r\n", line)
			answer, err := in.ReadString('\n')
			if err != nil || line == command {
				return conn, strings.Replace(answer, "*", "OK *", 1), err
			}
		}
		return conn, "", nil
	}
}

// overGRPC is overHTTP for a gRPC call.
func (r *running) overGRPC(call func(context.Context, *grpc.ClientConn) error) func(token string) (io.Closer, string, error) {
	return func(token string) (io.Closer, string, error) {
		conn, err := grpc.NewClient("passthrough:///"+r.bound.GRPC.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, "", err
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if token == "" {
			_ = call(ctx, conn) // it may be refused
			return conn, "", ctx.Err()
		}
		err = call(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token), conn)
		return conn, "OK", err
	}
}

func checkHealth(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	return err
}

func checkOnce(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := weirv1.NewLimiterServiceClient(conn).Check(ctx, &weirv1.CheckRequest{Policy: "default", Key: "alice"})
	return err
}
