package target

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
)

// startRedis starts a Redis with a password, and with a user who has another.
func startRedis(t testing.TB) (addr string) {
	t.Helper()
	server := redistest.Start(t, redistest.Password("", "secret"))
	server.MustDo("ACL", "SETUSER", "ann", "on", ">secret2", "~*", "+@all")
	return server.Addr()
}

func TestRedis(t *testing.T) {
	addr := startRedis(t)
	at := func(path string, command ...string) Config {
		return Config{URL: "redis://:secret@" + addr + path, Command: command}
	}
	wantAnswer(t, call(t, at("", "SET", "key{{seq}}", "value of {{worker}}\r\n")), true, "reply")
	if r := call(t, at("", "GET", "key7")); r.Bytes != len("$12\r\nvalue of 3\r\n\r\n") {
		t.Errorf("GET: %+v", r)
	}
	if r := call(t, at("/0", "GET", "key7")); r.Bytes != len("$12\r\nvalue of 3\r\n\r\n") {
		t.Errorf("GET from database 0: %+v", r)
	}
	if r := call(t, at("/2", "GET", "key7")); r.Bytes != len("$-1\r\n") {
		t.Errorf("GET from database 2: %+v", r)
	}
	wantAnswer(t, call(t, at("", "LPUSH", "key7", "x")), false, "WRONGTYPE")
	wantAnswer(t, call(t, at("", "NONSENSE")), false, "ERR")
	wantAnswer(t, call(t, at("", "COMMAND")), true, "reply") // large and nested
	wantAnswer(t, call(t, at("", "HELLO", "3")), true, "reply")
	wantAnswer(t, call(t, Config{URL: "redis://ann:secret2@" + addr, Command: []string{"PING"}}), true, "reply")

	ping := []string{"PING"}
	wantRefused(t, Config{URL: "redis://" + addr, Command: ping}, "redis://"+addr, "PING was answered with NOAUTH")
	wantRefused(t, Config{URL: "redis://:secret9@" + addr, Command: ping}, "AUTH was answered with WRONGPASS")
	wantRefused(t, Config{URL: "redis://bob:secret@" + addr, Command: ping}, "AUTH was answered with WRONGPASS")
	wantRefused(t, at("/9999", "PING"), "SELECT was answered with ERR")
}

// TestRedisInParallel also shows that each caller gets the replies to its own
// commands: their sizes differ.
func TestRedisInParallel(t *testing.T) {
	target := open(t, Config{URL: "redis://:secret@" + startRedis(t), Command: []string{"ECHO", "{{rand 1000000000}}"}, Connections: 8, Seed: 5})
	tmpl := mustParse(t, "{{rand 1000000000}}")
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			caller := target.Caller(worker)
			for i := range int64(200) {
				seq := i*8 + int64(worker)
				text := tmpl.text(at(5, 0, seq))
				want := len(fmt.Sprintf("$%d\r\n%s\r\n", len(text), text))
				if r := caller.Call(context.Background(), seq); !r.OK || r.Bytes != want {
					t.Errorf("%+v, want %d bytes", r, want)
				}
			}
		})
	}
	wg.Wait()
}

// answering is a server that reads commands and answers each with what reply says.
// It closes the connection if that is nothing.
func answering(t *testing.T, reply func(command string) string) string {
	t.Helper()
	return listen(t, func(c net.Conn) { converse(c, reply) })
}

func converse(c net.Conn, reply func(command string) string) {
	r := bufio.NewReader(c)
	for {
		command, err := readCommand(r)
		if err != nil {
			return
		}
		text := reply(command)
		if text == "" {
			return
		}
		io.WriteString(c, text)
	}
}

// readCommand returns the parts of a command, with spaces between them.
func readCommand(r *bufio.Reader) (string, error) {
	var n int
	if _, err := fmt.Fscanf(r, "*%d\r\n", &n); err != nil {
		return "", err
	}
	parts := make([]string, n)
	for i := range parts {
		var size int
		if _, err := fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
			return "", err
		}
		part := make([]byte, size+2)
		if _, err := io.ReadFull(r, part); err != nil {
			return "", err
		}
		parts[i] = string(part[:size])
	}
	return strings.Join(parts, " "), nil
}

// pong answers PING, and everything else with text.
func pong(text string) func(string) string {
	return func(command string) string {
		if command == "PING" {
			return "+PONG\r\n"
		}
		return text
	}
}

func TestRESPErrors(t *testing.T) {
	for _, tt := range []struct{ text, code string }{
		{"+OK\r\n+OK\r\n", "bad reply"},
		{"HTTP/1.1 400 Bad Request\r\n\r\n", "bad reply"},
		{"$67108865\r\n", "too large"},
		{"", "closed"},
	} {
		addr := answering(t, pong(tt.text))
		wantCode(t, call(t, Config{URL: "redis://" + addr, Command: []string{"GET", "a"}}), tt.code)
	}
	config := func(addr string) Config {
		return Config{URL: "redis://" + addr, Command: []string{"GET", "a"}}
	}
	wantRefused(t, config(refusing(t)), "connection refused")
	wantRefused(t, config(answering(t, func(string) string { return "" })), "PING: EOF")
	wantRefused(t, config(answering(t, func(string) string { return "-LOADING secret\r\n" })), "PING was answered with LOADING")
	silent := config(listen(t, func(c net.Conn) { io.Copy(io.Discard, c) }))
	silent.Timeout = 500 * time.Millisecond
	wantRefused(t, silent, "PING", "timeout")
}

// TestRESPReconnects has a server that breaks off in the middle of its first
// replies to GET, and falls silent at the third.
func TestRESPReconnects(t *testing.T) {
	gets := 0
	addr := answering(t, func(command string) string {
		if !strings.HasPrefix(command, "GET") {
			return "+OK\r\n"
		}
		gets++
		switch gets {
		case 1:
			return ""
		case 2:
			return "what\r\n"
		case 3:
			return "$10\r\nhalf"
		}
		return "$1\r\nx\r\n"
	})
	caller := open(t, Config{URL: "redis://:pass@" + addr + "/1", Command: []string{"GET", "{{seq}}"}}).Caller(0)
	wantCode(t, caller.Call(context.Background(), 0), "closed")
	wantCode(t, caller.Call(context.Background(), 1), "bad reply")
	caller.timeout = time.Second // enough to connect again
	wantCode(t, caller.Call(context.Background(), 2), "timeout")
	caller.timeout = defaultTimeout
	for seq := range int64(3) {
		wantAnswer(t, caller.Call(context.Background(), seq), true, "reply")
	}
}

// TestRESPGreetsAgain shows that AUTH and SELECT come first on every connection, and
// what a call is that does not get past them.
func TestRESPGreetsAgain(t *testing.T) {
	var received []string
	addr := answering(t, func(command string) string {
		received = append(received, command)
		switch {
		case command == "GET 1":
			return ""
		case strings.HasPrefix(command, "AUTH") && len(received) > 8:
			return "-WRONGPASS secret\r\n"
		}
		return "+OK\r\n"
	})
	caller := open(t, Config{URL: "redis://ann:pa%2Fss@" + addr + "/3", Command: []string{"GET", "{{seq}}"}}).Caller(0)
	wantAnswer(t, caller.Call(context.Background(), 0), true, "reply")
	wantCode(t, caller.Call(context.Background(), 1), "closed")
	r := caller.Call(context.Background(), 2)
	wantAnswer(t, r, true, "reply")
	wantCode(t, caller.Call(context.Background(), 1), "closed")
	r = caller.Call(context.Background(), 2)
	wantCode(t, r, "WRONGPASS")
	wantParts(t, r.Err, "AUTH was answered with WRONGPASS")
	hello := "AUTH ann pa/ss, SELECT 3, "
	want := hello + "PING, " + hello + "GET 0, GET 1, " + hello + "GET 2, GET 1, AUTH ann pa/ss"
	if got := strings.Join(received, ", "); got != want {
		t.Errorf("the server received %s, want %s", got, want)
	}
}

// TestRESPCanceled ends ctx while a call waits, and then makes another on the same
// caller, which must not get the late reply.
func TestRESPCanceled(t *testing.T) {
	arrived, end := make(chan struct{}), make(chan struct{})
	addr := answering(t, func(command string) string {
		switch command {
		case "GET 0":
			close(arrived)
			<-end
			return "$4\r\nlate\r\n"
		case "GET 1":
			return "$1\r\nx\r\n"
		}
		return "+OK\r\n"
	})
	caller := open(t, Config{URL: "redis://" + addr, Command: []string{"GET", "{{seq}}"}}).Caller(0)
	ctx, cancel := context.WithCancel(context.Background())
	begin := time.Now()
	go func() { <-arrived; cancel() }()
	wantCode(t, caller.Call(ctx, 0), "canceled")
	if took := time.Since(begin); took > defaultTimeout/2 {
		t.Errorf("it took %v to notice that ctx had ended", took)
	}
	close(end)
	if r := caller.Call(context.Background(), 1); !r.OK || r.Bytes != len("$1\r\nx\r\n") {
		t.Errorf("got %+v", r)
	}
}

func TestRESPOverTLS(t *testing.T) {
	srv := httptest.NewTLSServer(nil) // for its certificate
	srv.Close()
	config := &tls.Config{Certificates: srv.TLS.Certificates}
	addr := listen(t, func(c net.Conn) { converse(tls.Server(c, config), pong("+OK\r\n")) })
	_, port, _ := net.SplitHostPort(addr)
	wantRefused(t, Config{URL: "rediss://localhost:" + port, Command: []string{"PING"}}, "not localhost")
	wantAnswer(t, call(t, Config{URL: "rediss://" + addr, Command: []string{"GET", "a"}}), true, "reply")
}

// TestRESPCloseEndsCalls closes a target while a call waits.
func TestRESPCloseEndsCalls(t *testing.T) {
	arrived, end := make(chan struct{}), make(chan struct{})
	addr := answering(t, func(command string) string {
		if command == "PING" {
			return "+PONG\r\n"
		}
		close(arrived)
		<-end
		return ""
	})
	defer close(end)
	target := open(t, Config{URL: "redis://" + addr, Command: []string{"GET", "a"}})
	results := make(chan Result)
	caller := target.Caller(0)
	go func() { results <- caller.Call(context.Background(), 0) }()
	<-arrived
	target.Close()
	wantCode(t, <-results, "closed")
	wantCode(t, caller.Call(context.Background(), 1), "closed")
}

func TestEncodingDoesNotAllocate(t *testing.T) {
	p, err := compile(Config{URL: "redis://h", Command: []string{"SET", "key:{{zipf 1000}}", "{{seq}}"}})
	if err != nil {
		t.Fatal(err)
	}
	s := &respSender{driver: newRESP(p, nil), vars: newVars(1, 0)}
	s.encode()
	if n := testing.AllocsPerRun(1000, s.encode); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRedis(b *testing.B) {
	caller := open(b, Config{URL: "redis://:secret@" + startRedis(b), Command: []string{"GET", "key:{{rand 1000}}"}}).Caller(0)
	b.ReportAllocs()
	for i := range b.N {
		if r := caller.Call(context.Background(), int64(i)); !r.OK {
			b.Fatalf("%+v", r)
		}
	}
}
