package redisconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir/internal/redistest"
)

// The reply is lost, so nobody knows, and nothing is sent again: not even commands
// that only read.
func TestUnknownLostReply(t *testing.T) {
	t.Parallel()
	server, relay, conn := relayed(t, Config{})
	for name, command := range map[string]rueidis.Completed{
		"INCR": conn.Client.B().Incr().Key("key").Build(),
		"GET":  conn.Client.B().Get().Key("key").Build(),
	} {
		relay.DropNextReply(name)
		wantUnknown(t, conn.Client.Do(testContext(t), command).Error(), true)
		if got := server.CommandCalls(name); got != 1 {
			t.Errorf("%s was sent %d times", name, got)
		}
	}
	if got := do(t, conn, "key", "INCR"); got != "2" {
		t.Errorf("INCR = %s, want 2", got)
	}
}

func TestUnknownLua(t *testing.T) {
	t.Parallel()
	server, relay, conn := relayed(t, Config{})
	script := rueidis.NewLuaScript("return redis.call('INCR', KEYS[1])")
	run := func() error { return script.Exec(testContext(t), conn.Client, []string{"key"}, nil).Error() }
	if err := run(); err != nil { // NOSCRIPT, then EVAL
		t.Fatal(err)
	}
	relay.DropNextReply("EVALSHA")
	wantUnknown(t, run(), true)
	if got := server.MustDo("GET", "key").Text; got != "2" {
		t.Errorf("the script ran %s times, want 2", got)
	}
}

func TestUnknownCut(t *testing.T) {
	t.Parallel()
	server, relay, conn := relayed(t, Config{Conns: 1}) // or else others break later
	relay.Block()
	err := during(t, func() error {
		_, err := try(testContext(t), conn, "key", "INCR")
		return err
	}, relay.Cut)
	wantUnknown(t, err, true)
	relay.Unblock()
	wantWorks(t, conn, "key")
	if got := server.CommandCalls("incr"); got != 1 {
		t.Errorf("INCR was sent %d times", got)
	}
}

// during runs f, and disturb while f waits.
func during(t *testing.T, f func() error, disturb func()) error {
	t.Helper()
	done := make(chan error)
	go func() { done <- f() }()
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(20 * time.Millisecond):
			disturb() // again and again, since nobody sees when f has begun to wait
		case <-time.After(waitLimit):
			t.Fatal("it does not end")
		}
	}
}

// A reply that is late costs its caller only: the connection stays.
func TestUnknownTimeout(t *testing.T) {
	t.Parallel()
	server, relay, conn := relayed(t, Config{Conns: 1})
	do(t, conn, "key", "INCR")
	id := clientID(t, server)
	relay.Block()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond) // by then it was sent
	defer cancel()
	_, err := try(ctx, conn, "key", "INCR")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
	wantUnknown(t, err, true)
	relay.Unblock()
	if got := do(t, conn, "key", "INCR"); got != "3" {
		t.Errorf("INCR = %s, want 3: the late one counts", got)
	}
	if got := clientID(t, server); got != id {
		t.Errorf("connection %s, want %s", got, id)
	}
}

// The connection to a server that hangs is closed after Timeout.
func TestUnknownSilence(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	server := redistest.Start(t)
	conn := open(t, Config{Addrs: []string{server.Addr()}, Timeout: timeout})
	begin := time.Now()
	server.Pause()
	_, err := try(context.Background(), conn, "key", "INCR")
	took := time.Since(begin)
	wantUnknown(t, err, true)
	if took < timeout/2 || took > waitLimit/2 { // wide, because a ping may have been on its way
		t.Errorf("it took %v, want between %v and %v", took, timeout, 2*timeout)
	}
	t.Logf("closed after %v", took)
	server.Resume()
}

func TestUnknownClosed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn := open(t, Config{Addrs: []string{server.Addr()}})
	conn.Close()
	_, err := try(testContext(t), conn, "key", "INCR")
	if !errors.Is(err, rueidis.ErrClosing) {
		t.Errorf("err = %v", err)
	}
	wantUnknown(t, err, true)
}

func TestKnownRefused(t *testing.T) {
	t.Parallel()
	_, relay, conn := relayed(t, Config{Conns: 1}) // or else others break later
	relay.Refuse()
	relay.Cut()
	await(t, "the connections to be gone", func() error {
		_, err := try(testContext(t), conn, "key", "INCR")
		if IsUnknown(err) {
			return err // it was sent on a connection that was about to break
		}
		if want := "redisconn: " + relay.Addr() + ": connection refused"; err == nil || err.Error() != want {
			t.Errorf("err = %v, want %s", err, want)
		}
		return nil
	})
	relay.Accept()
	wantWorks(t, conn, "key")
}

// Nothing is sent either if time is up while a connection is being made.
func TestKnownDialTimeout(t *testing.T) {
	t.Parallel()
	d := &dialer{ctx: context.Background()}
	d.loose.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := d.dial(ctx, "127.0.0.1:1", &net.Dialer{}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	wantUnknown(t, err, false)
}

func TestKnownReply(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn := open(t, Config{Addrs: []string{server.Addr()}})
	server.MustDo("SET", "text", "x")
	for _, command := range [][]string{{"INCR"}, {"NONSENSE"}, {"LPUSH", "a"}} {
		_, err := try(testContext(t), conn, "text", command...)
		if err == nil {
			t.Errorf("%q worked", command)
		}
		wantUnknown(t, err, false)
	}
	err := conn.Client.Do(testContext(t), conn.Client.B().Evalsha().Sha1("0").Numkeys(0).Build()).Error()
	wantUnknown(t, err, false)
	_, err = try(testContext(t), conn, "nothing", "GET")
	if !rueidis.IsRedisNil(err) {
		t.Errorf("err = %v", err)
	}
	wantUnknown(t, err, false)
}

func TestIsUnknown(t *testing.T) {
	t.Parallel()
	tests := []struct {
		err  error
		want bool
	}{
		{nil, false},
		{rueidis.ErrNoSlot, false},
		{&dialError{"a", io.EOF}, false},
		{fmt.Errorf("take: %w", &dialError{"a", io.EOF}), false},
		{fmt.Errorf("take: %w", io.EOF), true},
		{context.Canceled, true},
		{rueidis.ErrClosing, true},
		{errors.New("anything"), true},
	}
	for _, tt := range tests {
		wantUnknown(t, tt.err, tt.want)
	}
}

func wantUnknown(t *testing.T, err error, want bool) {
	t.Helper()
	if got := IsUnknown(err); got != want {
		t.Errorf("IsUnknown(%v, a %T) = %v, want %v", err, err, got, want)
	}
}

// relayed returns a Conn that goes through a relay.
func relayed(t *testing.T, c Config) (*redistest.Server, *redistest.Relay, *Conn) {
	t.Helper()
	server := redistest.Start(t)
	relay := redistest.NewRelay(t, server.Addr())
	c.Addrs = []string{relay.Addr()}
	return server, relay, open(t, c)
}
