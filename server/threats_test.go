package server

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/ruleset"
)

// respLines sends commands to a server's RESP listener, all at once, and returns n lines of replies.
func respLines(t *testing.T, r *running, commands string, n int) []string {
	t.Helper()
	conn, err := net.Dial("tcp", r.bound.RESP.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write([]byte(commands))
		sent <- err
	}()
	in, lines := bufio.NewReader(conn), make([]string, 0, n)
	for range n {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("after %d of %d lines: %v", len(lines), n, err)
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	return lines
}

// Threat 33: a cost that no limit counts is refused, and a plain cost is charged, on every front end.
func TestEveryCostCounts(t *testing.T) {
	unit := func(name, unit string) ruleset.Limit {
		return ruleset.Limit{Limit: weir.Limit{Name: name, Rate: 100, Per: weir.Every(time.Hour)}, Unit: unit}
	}
	r := run(t, Config{
		Limiter: frozenTable(t), GRPC: Listener{Address: "127.0.0.1:0"}, RESP: Listener{Address: "127.0.0.1:0"},
		Live: Live{Policies: []ruleset.Policy{
			{Name: "tokens", Limits: []ruleset.Limit{unit("", "tokens")}},
			{Name: "several", Limits: []ruleset.Limit{unit("a", "input"), unit("b", "output")}},
		}},
	})
	client, service := newClient(t), weirv1.NewLimiterServiceClient(dialGRPC(t, r, nil))
	left := int64(100)
	charged := func(front string, remaining int64, cost int64) {
		t.Helper()
		if left -= cost; remaining != left {
			t.Errorf("%s: %d remain, want %d", front, remaining, left)
		}
	}
	a, _ := check(t, client, r.url, `{"policy":"tokens","key":"k","cost":5}`)
	charged("HTTP", a.Remaining, 5)
	a, _ = check(t, client, r.url, `{"policy":"tokens","key":"k"}`)
	charged("HTTP without a cost", a.Remaining, 1)
	g, err := service.Check(t.Context(), &weirv1.CheckRequest{Policy: "tokens", Key: "k", Cost: proto.Int64(7)})
	if err != nil {
		t.Fatal(err)
	}
	charged("gRPC", g.GetRemaining(), 7)
	h, err := service.Reserve(t.Context(), &weirv1.ReserveRequest{Policy: "tokens", Key: "k", Cost: proto.Int64(4)})
	if err != nil {
		t.Fatal(err)
	}
	charged("gRPC, reserve", h.GetRemaining(), 4)
	left -= 6
	if lines := respLines(t, r, "WEIR.CHECK tokens k 6\r\n", 6); lines[3] != fmt.Sprintf(":%d", left) {
		t.Errorf("RESP: %q, want %d", lines, left)
	}
	if lines := respLines(t, r, "WEIR.CHECK several k 6\r\n", 1); !strings.HasPrefix(lines[0], "-ERR") {
		t.Errorf("RESP: %q", lines)
	}
	if _, err := service.Check(t.Context(), &weirv1.CheckRequest{Policy: "several", Key: "k", Cost: proto.Int64(7)}); err == nil || !strings.Contains(err.Error(), "input, output") {
		t.Errorf("gRPC: %v", err)
	}
	for _, body := range []string{`{"policy":"several","key":"k","cost":5}`, `{"policy":"several","key":"k"}`, `{"policy":"tokens","key":"k","cost":{"requests":5}}`} {
		if _, status := check(t, client, r.url, body); status != 400 {
			t.Errorf("%s: %d, want 400", body, status)
		}
	}
}

// Threat 31: a client that reserves as much as it can leaves room for the others.
func TestAClientAtItsBound(t *testing.T) {
	r := run(t, Config{
		Limiter: frozenTable(t), RESP: Listener{Address: "127.0.0.1:0"},
		Live: Live{
			Policies: []ruleset.Policy{onePolicy("default", 300_000)},
			Clients:  []Client{{Name: "greedy", Tokens: token("greedy")}, {Name: "other", Tokens: token("other")}},
		},
	})
	const share, more = 25_000, 100
	var commands strings.Builder
	fmt.Fprintf(&commands, "AUTH %s\r\n", token("greedy")[0].Reveal())
	for i := range share + more {
		fmt.Fprintf(&commands, "WEIR.RESERVE default k%d 1 TTL 3600000\r\n", i%1000)
	}
	admitted, refused := 0, 0
	for _, line := range respLines(t, r, commands.String(), 1+share*8+more*7) {
		switch {
		case line == "$-1":
			refused++
		case strings.HasPrefix(line, "$"):
			admitted++
		}
	}
	if admitted != share || refused != more {
		t.Errorf("%d admitted and %d refused, want %d and %d", admitted, refused, share, more)
	}
	other := respLines(t, r, "AUTH "+token("other")[0].Reveal()+"\r\nWEIR.RESERVE default k 1\r\n", 9)
	if !strings.HasPrefix(other[2], "$") || other[2] == "$-1" || other[4] != ":1" {
		t.Errorf("another client: %q", other)
	}
}
