package redisconn

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/secret"
)

func TestRefusedPort(t *testing.T) {
	t.Parallel()
	addr := refusedAddr(t)
	err := wantRefused(t, Config{Addrs: []string{addr}}, addr+": connection refused")
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v is not ECONNREFUSED", err)
	}
	other := refusedAddr(t)
	_, err = Open(testContext(t), patient(Config{Addrs: []string{addr, other}}))
	want := fmt.Sprintf("redisconn: %s: connection refused\nredisconn: %s: connection refused", addr, other)
	if err == nil || err.Error() != want {
		t.Errorf("err = %v, want both", err)
	}
}

// refusedAddr returns an address where nobody listens.
func refusedAddr(t *testing.T) string {
	t.Helper()
	relay := redistest.NewRelay(t, "127.0.0.1:1") // it keeps the port from others
	relay.Refuse()
	return relay.Addr()
}

func TestUnknownHost(t *testing.T) {
	t.Parallel()
	wantRefused(t, Config{Addrs: []string{"no-such-host.invalid:6379"}}, "no-such-host.invalid:6379: lookup ")
}

func TestWrongLogin(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Password("", "secret"))
	server.MustDo("ACL", "SETUSER", "limited", "on", ">"+canary, "~*", "+@all", "-info")
	server.MustDo("ACL", "SETUSER", "off", "off", ">"+canary, "~*", "+@all")
	addrs := []string{server.Addr()}
	password := secret.New(canary)
	tests := []struct {
		c    Config
		want string
	}{
		{Config{Password: password}, `wrong password for user "default" (WRONGPASS `},
		{Config{Username: "nobody", Password: password}, `wrong password for user "nobody" (WRONGPASS `},
		{Config{Username: "off", Password: password}, `wrong password for user "off" (WRONGPASS `},
		{Config{}, "it requires a password, and none is set (NOAUTH "},
		{Config{Username: "limited", Password: password}, `user "limited" lacks a permission (NOPERM `},
		{Config{Password: secret.New("secret"), DB: 99}, "database 99: DB index is out of range"},
	}
	for _, tt := range tests {
		tt.c.Addrs = addrs
		wantRefused(t, tt.c, server.Addr()+": "+tt.want)
	}
}

func TestNotRedis(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	addr := web.Listener.Addr().String()
	wantRefused(t, Config{Addrs: []string{addr}}, addr+": it does not speak the protocol of Redis as weir expects it (")
}

func TestSeveralWithoutCluster(t *testing.T) {
	t.Parallel()
	a, b := redistest.Start(t), redistest.Start(t)
	_, err := Open(testContext(t), patient(Config{Addrs: []string{a.Addr(), b.Addr()}}))
	want := "redisconn: " + a.Addr() + ": it is no cluster, so there must be one address, not 2\n"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("err = %v, want %s", err, want)
	}
}

// Before version 6 there was no HELLO, and the complaint about it had the password in it.
func TestTooOld(t *testing.T) {
	t.Parallel()
	addr := startFake(t, func(command []string) string {
		switch strings.ToUpper(command[0]) {
		case "INFO":
			return bulk("# Server\r\nredis_version:5.0.14\r\nredis_mode:standalone\r\nrole:master\r\n")
		case "AUTH", "CLIENT", "SELECT":
			return "+OK\r\n"
		}
		return fmt.Sprintf("-ERR unknown command `%s`, with args beginning with: %q\r\n", command[0], command[1:])
	})
	for _, password := range []string{"", canary} {
		wantRefused(t, Config{Addrs: []string{addr}, Password: secret.New(password)},
			addr+": Redis 5.0.14 is too old: 6.2 or later is needed")
	}
}

// Whatever a server says, the password is not passed on.
func TestTellsNoPassword(t *testing.T) {
	t.Parallel()
	addr := startFake(t, func(command []string) string {
		return fmt.Sprintf("-ERR what do you mean by %q\r\n", command)
	})
	err := wantRefused(t, Config{Addrs: []string{addr}, Password: secret.New(canary)}, addr+": what do you mean by ")
	for ; err != nil; err = errors.Unwrap(err) {
		if strings.Contains(err.Error(), canary) {
			t.Errorf("it tells the password: %v", err)
		}
	}
}

func TestStrangeInfo(t *testing.T) {
	t.Parallel()
	for info, want := range map[string]string{
		"":                        "INFO has no redis_version: is it Redis?",
		"redis_version:x\r\n":     `INFO has redis_version "x", which is not a version`,
		"redis_version:6.1.9\r\n": "Redis 6.1.9 is too old: 6.2 or later is needed",
		"redis_version:6.2.0\r\nrole:slave\r\nmaster_host:h\r\nmaster_port:1\r\n": "it is a read-only replica of h:1",
	} {
		addr := startFake(t, func(command []string) string {
			if strings.ToUpper(command[0]) == "INFO" {
				return bulk(info)
			}
			return "%1\r\n$5\r\nproto\r\n:3\r\n"
		})
		wantRefused(t, Config{Addrs: []string{addr}}, addr+": "+want)
	}
}

func TestCheckVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"6.2.0": true, "6.2": true, "7.2.4": true, "10.0.0": true, "255.255.255": true,
		"6.0.16": false, "2.8.0": false, "6": false, "": false, "v7.0.0": false, "7.x": false,
	} {
		if err := checkVersion(version); (err == nil) != want {
			t.Errorf("%q: %v", version, err)
		}
	}
}

// A server that accepts connections and says nothing.
func TestSilence(t *testing.T) {
	t.Parallel()
	addr := startListener(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	c := patient(Config{Addrs: []string{addr}, DialTimeout: 500 * time.Millisecond})
	wantRefused(t, c, addr+": connected, but no reply arrived in time")

	c.DialTimeout = time.Hour
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("that is enough"))
	defer cancel()
	_, err := Open(ctx, c)
	if want := "redisconn: " + addr + ": cancelled: that is enough"; err == nil || err.Error() != want {
		t.Errorf("err = %v, want %s", err, want)
	}
}

// A context that ends while a server hangs in the middle ends Open, too.
func TestOpenEndsWithContext(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	relay := redistest.NewRelay(t, server.Addr())
	relay.Block()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	time.AfterFunc(50*time.Millisecond, cancel)
	begin := time.Now()
	_, err := Open(ctx, Config{Addrs: []string{relay.Addr()}, DialTimeout: time.Hour, Timeout: time.Hour})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want canceled", err)
	}
	if took := time.Since(begin); took > waitLimit {
		t.Errorf("it took %v", took)
	}
}

// A Conn outlives the context that it was opened with.
func TestConnOutlivesContext(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	conn, err := Open(ctx, patient(Config{Addrs: []string{server.Addr()}, Conns: 1}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	id := clientID(t, server)
	cancel()
	wantWorks(t, conn, "key")
	if got := clientID(t, server); got != id {
		t.Errorf("connection %s, want %s", got, id)
	}
}

// clientID returns the number of the connection of a Conn that has one. That of Open may
// still be about to close.
func clientID(t *testing.T, server *redistest.Server) (id string) {
	t.Helper()
	await(t, "one connection", func() error {
		var lines []string
		for line := range strings.Lines(server.MustDo("CLIENT", "LIST").Text) {
			if strings.Contains(line, " name=weir ") {
				lines = append(lines, line)
			}
		}
		if len(lines) != 1 {
			return fmt.Errorf("there are %d: %q", len(lines), lines)
		}
		id, _, _ = strings.Cut(lines[0], " ")
		return nil
	})
	return id
}

func bulk(text string) string { return "$" + strconv.Itoa(len(text)) + "\r\n" + text + "\r\n" }

// startFake starts a server that answers each command with a reply in RESP.
func startFake(t *testing.T, answer func(command []string) string) (addr string) {
	t.Helper()
	return startListener(t, func(conn net.Conn) {
		r := bufio.NewReader(conn)
		for {
			command, err := readCommand(r)
			if err != nil {
				return
			}
			if _, err := io.WriteString(conn, answer(command)); err != nil {
				return
			}
		}
	})
}

// readCommand reads an array of bulk strings.
func readCommand(r *bufio.Reader) (command []string, err error) {
	n, err := readLength(r, '*')
	if err != nil {
		return nil, err
	}
	for range n {
		size, err := readLength(r, '$')
		if err != nil {
			return nil, err
		}
		word := make([]byte, size+2)
		if _, err := io.ReadFull(r, word); err != nil {
			return nil, err
		}
		command = append(command, string(word[:size]))
	}
	return command, nil
}

func readLength(r *bufio.Reader, kind byte) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("line %q, want %c", line, kind)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// startListener serves connections until the test ends.
func startListener(t *testing.T, serve func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { defer conn.Close(); serve(conn) })
		}
	})
	return l.Addr().String()
}
