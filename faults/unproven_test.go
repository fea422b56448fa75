package faults

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

	"github.com/weirlimit/weir/faults/internal/rig"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
)

// F16b: somebody without a token takes all connections, is answered, and is silent then.
func TestStrangers(t *testing.T) {
	n := pick(4096, 256)
	tr := try(t, "F16b", "4,096 connections without a token to each listener of a daemon that takes 4,096, each answered (`GET /healthz`, a health check over gRPC, `PING` over RESP) and then silent",
		"a client with a token, and a health check, is answered within 2 s over HTTP, gRPC and RESP")
	needFiles(tr, n+500)
	file := config(tr, fmt.Sprintf("listen: {max_connections: %d}\nclients: {shop: {token: %s}}\n", n, clientToken))
	daemon := tr.fleet(1, "-c", file, "--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0").Daemons[0]
	before := daemon.Usage().RSS
	for _, p := range []protocol{
		{"HTTP", daemon.Listener("http"), askHTTP},
		{"gRPC", daemon.Listener("grpc"), askGRPC},
		{"RESP", daemon.Listener("resp"), askRESP},
	} {
		tr.occupy(p, n)
		const mib = 1 << 20
		tr.note(p.name+": MiB more than before", "%d", (daemon.Usage().RSS-before)/mib)
	}
	daemon.Stop()
}

const clientToken = "client-0123456789-0123456789-0123456789"

// A protocol asks on a new connection: whether the daemon is healthy or, with a token, for a check.
type protocol struct {
	name, address string
	ask           func(address, token string) (io.Closer, error)
}

// occupy takes all connections of a listener, and sees who is answered then.
func (tr *trial) occupy(p protocol, n int) {
	tr.Helper()
	refused := 0
	for range n {
		conn, err := p.ask(p.address, "")
		if err != nil {
			refused++
			continue
		}
		defer conn.Close()
	}
	tr.none(p.name+": unproven connections without an answer", refused)
	for _, who := range []struct{ name, token string }{{"a client", clientToken}, {"a health check", ""}} {
		began := time.Now()
		conn, err := p.ask(p.address, who.token)
		took := time.Since(began)
		failed := 0
		if err != nil {
			failed++
			tr.Logf("%s: %s: %v", p.name, who.name, err)
		} else {
			conn.Close()
		}
		tr.none(fmt.Sprintf("%s: %s without an answer", p.name, who.name), failed)
		tr.within(fmt.Sprintf("%s: %s is answered within", p.name, who.name), took, 2*time.Second)
	}
}

// askLimit is how long a call may take: long enough to see how late it is, and shorter than
// unproven connections stay.
const askLimit = 8 * time.Second

func dialStranger(address string) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", address, askLimit)
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(askLimit))
	}
	return conn, err
}

func askHTTP(address, token string) (io.Closer, error) {
	conn, err := dialStranger(address)
	if err != nil {
		return nil, err
	}
	head := "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	if token != "" {
		body := fmt.Sprintf(`{"policy":%q,"key":"alice"}`, rig.Policy)
		head = fmt.Sprintf("POST /v1/check HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", token, len(body), body)
	}
	if _, err := io.WriteString(conn, head); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return conn, err
}

func askRESP(address, token string) (io.Closer, error) {
	conn, err := dialStranger(address)
	if err != nil {
		return nil, err
	}
	command, want := "PING", "-NOAUTH "
	if token != "" {
		command, want = "AUTH "+token, "+OK"
	}
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasPrefix(line, want) {
		err = fmt.Errorf("%q", line)
	}
	return conn, err
}

func askGRPC(address, token string) (io.Closer, error) {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	if token == "" {
		_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		return conn, err
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	_, err = weirv1.NewLimiterServiceClient(conn).Check(ctx, &weirv1.CheckRequest{Policy: rig.Policy, Key: "alice"})
	return conn, err
}
