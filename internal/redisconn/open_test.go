package redisconn

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/secret"
)

func TestOpenStandalone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn := open(t, Config{Addrs: []string{server.Addr()}, DB: 3, ClientName: "weir-test"})
	wantWorks(t, conn, "key")
	if conn.Cluster || conn.Version != server.Info("server")["redis_version"] {
		t.Errorf("cluster = %v, version = %q", conn.Cluster, conn.Version)
	}
	if got := server.Info("keyspace"); !strings.HasPrefix(got["db3"], "keys=1,") {
		t.Errorf("keyspace = %v, want a key in database 3", got)
	}
	if list := server.MustDo("CLIENT", "LIST").Text; !strings.Contains(list, "name=weir-test ") {
		t.Errorf("clients = %s", list)
	}
}

// All Conns connections are used, and one means one.
func TestConns(t *testing.T) {
	t.Parallel()
	for _, conns := range []int{1, 8} {
		t.Run(fmt.Sprint(conns), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			conn := open(t, Config{Addrs: []string{server.Addr()}, Conns: conns})
			for range 200 { // each takes one at random
				do(t, conn, "key", "INCR")
			}
			await(t, "the connection of Open to be gone", func() error {
				list := server.MustDo("CLIENT", "LIST").Text
				if got := strings.Count(list, " name=weir "); got != conns {
					return fmt.Errorf("%d connections, want %d:\n%s", got, conns, list)
				}
				return nil
			})
		})
	}
}

func TestOpenPassword(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"", "alice"} {
		server := redistest.Start(t, redistest.Password(user, "p@ss w%rd"))
		conn := open(t, Config{Addrs: []string{server.Addr()}, Username: user, Password: secret.New("p@ss w%rd")})
		wantWorks(t, conn, "key")
	}
}

func TestOpenParsed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Password("alice", "p@ss/word"), redistest.UnixSocket())
	c, err := Parse("redis://alice:p%40ss%2Fword@" + server.Addr() + "/2")
	if err != nil {
		t.Fatal(err)
	}
	wantWorks(t, open(t, c), "key")
	socket, err := Parse("unix://" + server.Socket())
	if err != nil {
		t.Fatal(err)
	}
	socket.Username, socket.Password = c.Username, c.Password
	wantWorks(t, open(t, socket), "key2")
}

func TestOpenTLS(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.TLS(), redistest.Password("", "secret"))
	c, err := Parse("rediss://:secret@" + server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	wantRefused(t, c, server.Addr()+": tls: failed to verify certificate")
	c.TLS.RootCAs = server.TLSConfig().RootCAs
	wantWorks(t, open(t, c), "key")

	c.TLS = server.TLSConfig()
	wantWorks(t, open(t, c), "key2") // by the host that it is reached by
	c.TLS = c.TLS.Clone()
	c.TLS.ServerName = "example.com"
	wantRefused(t, c, server.Addr()+": tls: failed to verify certificate")
	c.TLS = nil
	wantRefused(t, c, server.Addr()+": ")
}

func TestOpenSocket(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.UnixSocket())
	for i, addr := range []string{server.Socket(), "unix://" + server.Socket()} {
		wantWorks(t, open(t, Config{Addrs: []string{addr}}), fmt.Sprint("key", i))
	}
	wantRefused(t, Config{Addrs: []string{"/no/such.sock"}}, "/no/such.sock: no such file or directory")
}

func TestOpenSentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, redistest.Password("alice", "secret"))
	c := Config{
		Addrs: s.SentinelAddrs(), Sentinel: s.MasterName(), Username: "alice", Password: secret.New("secret"),
	}
	conn := open(t, c)
	wantWorks(t, conn, "key")
	if got := s.Primary().MustDo("GET", "key").Text; got != "1" || conn.Cluster {
		t.Errorf("at the primary: %q; cluster = %v", got, conn.Cluster)
	}

	c.Addrs = append([]string{refusedAddr(t)}, c.Addrs...) // one that is down
	wantWorks(t, open(t, c), "key2")

	t.Run("unknown name", func(t *testing.T) {
		c := c
		c.Addrs, c.Sentinel = s.SentinelAddrs()[:1], "other"
		wantRefused(t, c, "Sentinel "+c.Addrs[0]+`: it knows no primary by the name "other"`)
	})
	t.Run("wrong password", func(t *testing.T) {
		c := c
		c.Addrs, c.Password = s.SentinelAddrs()[:1], secret.New(canary)
		wantRefused(t, c, s.Primary().Addr()+`: wrong password for user "alice" (WRONGPASS `)
	})
	t.Run("wrong Sentinel password", func(t *testing.T) {
		c := c
		c.Addrs, c.SentinelUsername, c.SentinelPassword = s.SentinelAddrs()[:1], "bob", secret.New(canary)
		wantRefused(t, c, "Sentinel "+c.Addrs[0]+`: wrong password for user "bob" (WRONGPASS `)
	})
	t.Run("no name", func(t *testing.T) {
		wantRefused(t, Config{Addrs: s.SentinelAddrs()[:1]}, s.SentinelAddrs()[0]+": it is a Sentinel")
	})
	t.Run("replica", func(t *testing.T) {
		c := c
		c.Addrs, c.Sentinel = []string{s.Replica().Addr()}, ""
		wantRefused(t, c, s.Replica().Addr()+": it is a read-only replica of "+s.Primary().Addr())
	})
	t.Run("no Sentinel", func(t *testing.T) {
		server := redistest.Start(t)
		c := c
		c.Addrs = []string{server.Addr()}
		wantRefused(t, c, server.Addr()+`: it is no Sentinel, but Sentinel is set to "`)
	})

	s.Failover()
	next := s.WaitPromoted()
	await(t, "the client to find the new primary", func() error {
		if _, err := try(testContext(t), conn, "after", "SET", "1"); err != nil {
			return err
		}
		if next.MustDo("GET", "after").Text != "1" {
			return fmt.Errorf("it is still at the old one")
		}
		return nil
	})
}

// wantWorks writes a new key.
func wantWorks(t *testing.T, conn *Conn, key string) {
	t.Helper()
	if got := do(t, conn, key, "INCR"); got != "1" {
		t.Errorf("INCR %s = %s, want 1", key, got)
	}
}

// wantRefused wants an error of Open that is all of one line and tells no password.
func wantRefused(t *testing.T, c Config, want string) error {
	t.Helper()
	begin := time.Now()
	conn, err := Open(testContext(t), patient(c))
	if err == nil {
		conn.Close()
		t.Errorf("it opened, want %q", want)
		return nil
	}
	text := err.Error()
	if !strings.HasPrefix(text, "redisconn: "+want) {
		t.Errorf("err = %q, want %q", text, want)
	}
	if strings.Contains(text, canary) || strings.Contains(text, "\n") {
		t.Errorf("err = %q", text)
	}
	if took := time.Since(begin); took > waitLimit/2 {
		t.Errorf("it took %v", took)
	}
	return err
}
