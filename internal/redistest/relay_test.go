package redistest

import (
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// A reply is lost, but the INCR happened.
func TestRelayDropsReply(t *testing.T) {
	t.Parallel()
	server, relay, c := relayed(t)
	wantReply(t, c, "1", "INCR", "key")
	relay.DropNextReply()
	wantLost(t, c, "INCR", "key")
	wantText(t, server, "2", "GET", "key")
	wantReply(t, connect(t, relay), "3", "INCR", "key")
	if got := relay.Dropped(); got != 1 {
		t.Errorf("dropped = %d, want 1", got)
	}
}

// Only the commands named lose replies, as many as wanted, whoever sends them.
func TestRelayDropsRepliesOfCommand(t *testing.T) {
	t.Parallel()
	server, relay, c := relayed(t)
	relay.DropReplies(2, "incr", "DECR")
	wantReply(t, c, "PONG", "PING")
	wantReply(t, c, "OK", "SET", "key", "10")
	wantLost(t, c, "INCR", "key")
	c = connect(t, relay)
	wantReply(t, c, "11", "GET", "key")
	wantLost(t, c, "DECR", "key")
	wantReply(t, connect(t, relay), "11", "INCR", "key")
	wantText(t, server, "11", "GET", "key")
}

// Replies to requests before the one that is lost arrive.
func TestRelayDropsInPipeline(t *testing.T) {
	t.Parallel()
	server, relay, c := relayed(t)
	relay.DropNextReply("DECR")
	send(t, c, []string{"INCR", "a"}, []string{"INCR", "a"}, []string{"DECR", "a"}, []string{"INCR", "b"})
	for _, want := range []string{"1", "2"} {
		if r, err := readReply(c.br); err != nil || r.Text != want {
			t.Errorf("reply = %+v, %v; want %s", r, err, want)
		}
	}
	if r, err := readReply(c.br); err == nil {
		t.Errorf("the reply to DECR arrived: %+v", r)
	}
	wantText(t, server, "1", "GET", "a")
}

// Pushes and confirmations of subscriptions are no replies, so that the drop hits
// the right request.
func TestRelayKnowsPushes(t *testing.T) {
	t.Parallel()
	server, relay, c := relayed(t)
	send(t, c, []string{"HELLO", "3"}, []string{"SUBSCRIBE", "news"})
	for _, kind := range []byte{'%', '>'} {
		wantFrame(t, c, kind)
	}
	relay.DropNextReply("BLPOP")
	send(t, c, []string{"BLPOP", "list", "0"})
	await(t, "BLPOP to wait", commandTimeout, func() error {
		if server.Info("clients")["blocked_clients"] != "1" {
			return errors.New("nobody waits")
		}
		return nil
	})
	server.MustDo("PUBLISH", "news", "x")
	wantFrame(t, c, '>')
	server.MustDo("RPUSH", "list", "x")
	if frame, err := readFrame(c.br); err != io.EOF {
		t.Errorf("frame = %q, %v; want a closed connection", frame, err)
	}
	wantText(t, server, "0", "LLEN", "list")
}

func TestRelayDelay(t *testing.T) {
	t.Parallel()
	_, relay, c := relayed(t)
	const d, n = 100 * time.Millisecond, 100
	relay.Delay(d)
	begin := time.Now()
	for range n {
		send(t, c, []string{"INCR", "key"})
	}
	for i := range n {
		if r, err := readReply(c.br); err != nil || r.Text != strconv.Itoa(i+1) {
			t.Fatalf("reply %d = %+v, %v", i, r, err)
		}
	}
	if took := time.Since(begin); took < d || took > n*d/2 {
		t.Errorf("%d requests together took %v, want little more than %v", n, took, d)
	}
	relay.Delay(0)
	wantReply(t, c, strconv.Itoa(n+1), "INCR", "key")
}

func TestRelayCut(t *testing.T) {
	t.Parallel()
	_, relay, c := relayed(t)
	wantReply(t, c, "PONG", "PING")
	relay.Cut()
	wantLost(t, c, "PING")
	wantReply(t, connect(t, relay), "PONG", "PING")
}

func TestRelayBlock(t *testing.T) {
	t.Parallel()
	server, relay, old := relayed(t)
	wantReply(t, old, "PONG", "PING")
	relay.Block()
	relay.Block() // once more changes nothing
	fresh := connect(t, relay)
	for _, c := range []*client{old, fresh} {
		send(t, c, []string{"INCR", "key"})
		_ = c.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := c.br.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("behind a block: %v, want a time-out", err)
		}
		_ = c.conn.SetReadDeadline(time.Now().Add(commandTimeout))
	}
	if r := server.MustDo("GET", "key"); !r.Nil {
		t.Errorf("a request passed the block: %+v", r)
	}
	relay.Unblock()
	relay.Unblock()
	for _, c := range []*client{old, fresh} {
		if _, err := readReply(c.br); err != nil {
			t.Error(err)
		}
	}
	wantText(t, server, "2", "GET", "key")
}

func TestRelayRefuse(t *testing.T) {
	t.Parallel()
	_, relay, c := relayed(t)
	wantReply(t, c, "PONG", "PING")
	relay.Refuse()
	relay.Refuse()
	conn, err := net.DialTimeout("tcp", relay.Addr(), time.Second)
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial = %v, %v; want refused", conn, err)
	}
	wantReply(t, c, "PONG", "PING") // it was there before
	relay.Accept()
	relay.Accept()
	wantReply(t, connect(t, relay), "PONG", "PING")
}

func TestRelayToDeadServer(t *testing.T) {
	t.Parallel()
	server, relay, c := relayed(t)
	wantReply(t, c, "PONG", "PING")
	server.Kill()
	wantLost(t, c, "PING")
	wantLost(t, connect(t, relay), "PING")
	server.Restart()
	wantReply(t, connect(t, relay), "PONG", "PING")
}

func TestRelayRefusesOtherProtocols(t *testing.T) {
	t.Parallel()
	server := Start(t)
	r := record(func(t testing.TB) {
		relay := NewRelay(t, server.Addr())
		conn, err := net.Dial("tcp", relay.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = conn.Write([]byte("GET / HTTP/1.1\r\n"))
		_, _ = io.ReadAll(conn) // until the relay closes it
	})
	if !r.failed {
		t.Error("there is no error although a client does not speak RESP")
	}
}

// A relay ends with its test, even if it is blocked and has connections.
func TestRelayEndsWithTest(t *testing.T) {
	t.Parallel()
	server := Start(t)
	r := record(func(tb testing.TB) {
		relay := NewRelay(tb, server.Addr())
		relay.Delay(time.Hour)
		send(t, connect(t, relay), []string{"PING"})
		relay.Block()
		send(t, connect(t, relay), []string{"PING"})
	})
	if r.failed {
		t.Error(r.text)
	}
}

func relayed(t *testing.T) (*Server, *Relay, *client) {
	t.Helper()
	server := Start(t)
	relay := NewRelay(t, server.Addr())
	return server, relay, connect(t, relay)
}

func connect(t *testing.T, r *Relay) *client {
	t.Helper()
	conn, err := net.DialTimeout("tcp", r.Addr(), commandTimeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(commandTimeout)); err != nil {
		t.Fatal(err)
	}
	return newClient(conn)
}

func send(t *testing.T, c *client, commands ...[]string) {
	t.Helper()
	var b []byte
	for _, command := range commands {
		b = appendCommand(b, command)
	}
	if _, err := c.conn.Write(b); err != nil {
		t.Fatal(err)
	}
}

func wantReply(t *testing.T, c *client, want string, command ...string) {
	t.Helper()
	r, err := c.do(command...)
	if err != nil || r.Text != want {
		t.Errorf("%q = %+v, %v; want %q", command, r, err, want)
	}
}

// wantLost sends a command and wants the connection closed, not a time-out.
func wantLost(t *testing.T, c *client, command ...string) {
	t.Helper()
	r, err := c.do(command...)
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%q = %+v, %v; want a closed connection", command, r, err)
	}
}

func wantFrame(t *testing.T, c *client, kind byte) {
	t.Helper()
	frame, err := readFrame(c.br)
	if err != nil || frame[0] != kind {
		t.Fatalf("frame = %q, %v; want one of type %q", frame, err, kind)
	}
}
