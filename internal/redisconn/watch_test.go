package redisconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/secret"
)

func TestWatch(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Password("alice", "secret"))
	conn := open(t, Config{Addrs: []string{server.Addr()}, DB: 2, Username: "alice", Password: secret.New("secret")})
	var seen record
	stop := startWatch(t, conn, "a:", seen.add)
	if got := seen.take(); got != "nil" {
		t.Errorf("at the beginning: %s, want nil", got)
	}

	do(t, conn, "b:1", "SET", "x")
	do(t, conn, "a:1", "SET", "x") // by ourselves, in database 2
	seen.await(t, "a:1")
	server.MustDo("SET", "a:2", "x") // by somebody else, in another database
	seen.await(t, "a:2")
	server.MustDo("EVAL", "redis.call('SET', 'a:3', 1) return redis.call('INCR', 'b:2')", "0")
	seen.await(t, "a:3")
	do(t, conn, "a:1", "PEXPIRE", "500") // less, and both might be reported together
	seen.await(t, "a:1")
	seen.await(t, "a:1") // it expires
	server.MustDo("FLUSHALL")
	seen.await(t, "nil")
	if got := seen.take(); got != "" {
		t.Errorf("then %s, want nothing", got)
	}

	stop()
	stop()
	server.MustDo("SET", "a:4", "x")
	if got := seen.take(); got != "" {
		t.Errorf("after stop: %s", got)
	}
	await(t, "the connection of the watch to be closed", func() error {
		if list := server.MustDo("CLIENT", "LIST").Text; strings.Contains(list, " flags=tB") {
			return errors.New(list)
		}
		return nil
	})
}

// Two watches do not disturb each other, and Close ends both.
func TestWatchTwice(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn := open(t, Config{Addrs: []string{server.Addr()}})
	var a, b record
	startWatch(t, conn, "a:", a.add)
	startWatch(t, conn, "", b.add)
	a.await(t, "nil")
	b.await(t, "nil")
	server.MustDo("SET", "a:1", "x")
	a.await(t, "a:1")
	b.await(t, "a:1")
	server.MustDo("SET", "c", "x")
	b.await(t, "c")
	conn.Close()
	if a, b := a.take(), b.take(); a != "" || b != "" {
		t.Errorf("after Close: %s, %s", a, b)
	}
	if _, err := conn.Watch(testContext(t), "", b.add); err == nil {
		t.Error("a watch after Close")
	}
}

// A connection that is lost means nil, and so does the next one.
func TestWatchLoses(t *testing.T) {
	t.Parallel()
	server, relay, conn := relayed(t, Config{})
	var seen record
	startWatch(t, conn, "a:", seen.add)
	seen.await(t, "nil")
	relay.Cut()
	seen.await(t, "nil") // lost
	seen.await(t, "nil") // found
	server.MustDo("SET", "a:1", "x")
	seen.await(t, "a:1")
	server.Restart()
	seen.await(t, "nil")
	awaitChange(t, server, &seen, "a:2")
}

// A connection that dies without a word is found out.
func TestWatchSilence(t *testing.T) {
	t.Parallel()
	server, relay, conn := relayed(t, Config{Timeout: time.Second})
	var seen record
	startWatch(t, conn, "a:", seen.add)
	seen.await(t, "nil")
	relay.Block()
	server.MustDo("SET", "a:1", "x")
	seen.await(t, "nil")
	relay.Unblock()
	awaitChange(t, server, &seen, "a:2")
}

// awaitChange changes a key until a watch tells it, which may be about to connect.
func awaitChange(t *testing.T, server *redistest.Server, seen *record, key string) {
	t.Helper()
	await(t, "a watch of "+server.Addr(), func() error {
		server.MustDo("SET", key, "x")
		if got := seen.take(); !strings.Contains(got, key) {
			return fmt.Errorf("seen: %s", got)
		}
		return nil
	})
}

// stop ends a watch that is just connecting to a server that does not answer.
func TestWatchStopsWhileConnecting(t *testing.T) {
	t.Parallel()
	_, relay, conn := relayed(t, Config{DialTimeout: time.Hour})
	var seen record
	stop := startWatch(t, conn, "a:", seen.add)
	seen.await(t, "nil")
	relay.Block()
	relay.Cut()
	seen.await(t, "nil")
	begin := time.Now()
	stop()
	if took := time.Since(begin); took > waitLimit/2 {
		t.Errorf("it took %v", took)
	}
}

func TestWatchErrors(t *testing.T) {
	t.Parallel()
	server, relay, conn := relayed(t, Config{DialTimeout: time.Hour})
	server.MustDo("ACL", "SETUSER", "default", "-client|tracking")
	_, err := conn.Watch(testContext(t), "a:", nil)
	want := "redisconn: " + relay.Addr() + `: watch "a:": user "default" lacks a permission (NOPERM `
	if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("err = %v, want %s", err, want)
	}

	relay.Block()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = conn.Watch(ctx, "a:", func([]string) { t.Error("it was called") })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
	relay.Unblock()
}

// After a failover the new primary is watched.
func TestWatchSentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	conn := open(t, Config{Addrs: s.SentinelAddrs(), Sentinel: s.MasterName()})
	var seen record
	startWatch(t, conn, "a:", seen.add)
	seen.await(t, "nil")
	s.Primary().MustDo("SET", "a:1", "x")
	seen.await(t, "a:1")
	s.Failover()
	awaitChange(t, s.WaitPromoted(), &seen, "a:2")
}

func startWatch(t *testing.T, conn *Conn, prefix string, changed func([]string)) (stop func()) {
	t.Helper()
	stop, err := conn.Watch(testContext(t), prefix, changed)
	if err != nil {
		t.Fatal(err)
	}
	return stop
}

// record is what a watch has reported.
type record struct {
	mu   sync.Mutex // guards keys
	keys []string   // keys, or "nil"
}

func (r *record) add(keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if keys == nil {
		keys = []string{"nil"}
	}
	r.keys = append(r.keys, keys...)
}

// take returns the keys since the last take.
func (r *record) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.keys = nil }()
	return strings.Join(r.keys, " ")
}

// await waits until a key is reported, and drops it and the keys before it.
func (r *record) await(t *testing.T, key string) {
	t.Helper()
	await(t, "a change of "+key, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		i := slices.Index(r.keys, key)
		if i < 0 {
			return fmt.Errorf("reported: %q", r.keys)
		}
		r.keys = r.keys[i+1:]
		return nil
	})
}
