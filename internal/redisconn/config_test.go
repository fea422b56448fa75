package redisconn

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/secret"
)

const canary = "canary-4f1c"

func TestValidate(t *testing.T) {
	password := secret.New(canary)
	tests := []struct {
		name string
		c    Config
		want []string // parts of the problems, in order
	}{
		{"zero", Config{}, nil},
		{"all", Config{
			Addrs: []string{"a:1", "[::1]:65535", "[fe80::1%eth0]:6379"}, Sentinel: "mymaster",
			SentinelUsername: "s", SentinelPassword: password, Username: "u", Password: password,
			DB: 15, TLS: &tls.Config{}, DialTimeout: 1, Timeout: 10 * time.Millisecond, ClientName: "n", Conns: 256,
		}, nil},
		{"socket", Config{Addrs: []string{"/run/redis.sock"}}, nil},
		{"socket as URL", Config{Addrs: []string{"unix:///run/redis.sock"}}, nil},
		{"no port", Config{Addrs: []string{"a:1", "localhost"}}, []string{"Addrs[1]: want host:port"}},
		{"no host", Config{Addrs: []string{":6379"}}, []string{"Addrs[0]: there is no host"}},
		{"port 0", Config{Addrs: []string{"a:0"}}, []string{"Addrs[0]: the port"}},
		{"port 65536", Config{Addrs: []string{"a:65536"}}, []string{"Addrs[0]: the port"}},
		{"port by name", Config{Addrs: []string{"a:redis"}}, []string{"Addrs[0]: the port"}},
		{"empty", Config{Addrs: []string{""}}, []string{"Addrs[0]: want host:port"}},
		{"list in one", Config{Addrs: []string{"a:1,b:2"}}, []string{"Addrs[0]: want host:port"}},
		{"password in it", Config{Addrs: []string{canary + "@a:1"}}, []string{"Addrs[0]: the host has characters"}},
		{"URL", Config{Addrs: []string{"redis://u:" + canary + "@a:1"}}, []string{"Addrs[0]: want host:port"}},
		{"directory", Config{Addrs: []string{"/run/"}}, []string{"Addrs[0]: want host:port"}},
		{"two sockets", Config{Addrs: []string{"/a", "/b"}}, []string{"Addrs[0]: a socket", "Addrs[1]: a socket"}},
		{"socket and TLS", Config{Addrs: []string{"/a"}, TLS: &tls.Config{}}, []string{"Addrs[0]: a socket"}},
		{"socket and Sentinel", Config{Addrs: []string{"/a"}, Sentinel: "x"}, []string{"Addrs[0]: a socket"}},
		{"Sentinel", Config{Sentinel: "my master"}, []string{`Sentinel "my master"`}},
		{"user", Config{Username: "u"}, []string{`Username "u": is set without a password`}},
		{"Sentinel user", Config{Sentinel: "m", SentinelUsername: "u"}, []string{`SentinelUsername "u"`}},
		{"Sentinel password", Config{SentinelPassword: password}, []string{"SentinelPassword: is set without the name of a Sentinel"}},
		{"DB", Config{DB: -1}, []string{"DB -1"}},
		{"times", Config{DialTimeout: -1, Timeout: time.Millisecond}, []string{"DialTimeout -1ns", "Timeout 1ms: want 10ms"}},
		{"name", Config{ClientName: "a\nb"}, []string{`ClientName "a\nb"`}},
		{"conns 3", Config{Conns: 3}, []string{"Conns 3: want a power of two"}},
		{"conns 512", Config{Conns: 512}, []string{"Conns 512"}},
		{"conns -1", Config{Conns: -1}, []string{"Conns -1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { wantProblems(t, tt.c.Validate(), tt.want) })
	}
}

func wantProblems(t *testing.T, err error, want []string) {
	t.Helper()
	var lines []string
	if err != nil {
		lines = strings.Split(err.Error(), "\n")
	}
	if len(lines) != len(want) {
		t.Fatalf("problems = %q, want %q", lines, want)
	}
	for i, line := range lines {
		if !strings.HasPrefix(line, "redisconn: "+want[i]) {
			t.Errorf("problem = %q, want %q", line, want[i])
		}
		if strings.Contains(line, canary) {
			t.Errorf("it tells the password: %s", line)
		}
	}
}

func TestDefaults(t *testing.T) {
	c := Config{}.withDefaults()
	if got := fmt.Sprintln(c.Addrs, c.DialTimeout, c.Timeout, c.ClientName, c.Conns); got != "[127.0.0.1:6379] 1s 1s weir 4\n" {
		t.Errorf("defaults = %s", got)
	}
	c = Config{Sentinel: "mymaster"}.withDefaults()
	if got := fmt.Sprint(c.Addrs); got != "[127.0.0.1:26379]" {
		t.Errorf("Sentinels = %s", got)
	}
	given := []string{"unix:///run/redis.sock"}
	c = Config{Addrs: given}.withDefaults()
	if c.Addrs[0] != "/run/redis.sock" || given[0] != "unix:///run/redis.sock" {
		t.Errorf("socket = %q, and the caller's is %q", c.Addrs, given)
	}
}

func TestMultiplex(t *testing.T) {
	for conns, want := range map[int]int{1: -1, 2: 1, 4: 2, 256: 8} {
		if got := multiplex(conns); got != want {
			t.Errorf("multiplex(%d) = %d, want %d", conns, got, want)
		}
	}
}

// rueidis needs up to two periods to see that a watch is silent, and then waits for the answer to
// a ping. Other connections see to it themselves, unless their client has deadlines.
func TestSilenceEndsInTime(t *testing.T) {
	c := Config{Timeout: 300 * time.Millisecond}.withDefaults()
	pipelined, direct, watched := &dialer{}, &dialer{polite: true}, &dialer{}
	c.options(pipelined)
	c.options(direct)
	o := (&watch{conn: &Conn{config: c}}).options(watched, "")
	if pipelined.most != c.Timeout || direct.most != 0 || watched.most != 0 {
		t.Errorf("silence of %v, %v and %v ends connections, want %v, 0 and 0", pipelined.most, direct.most, watched.most, c.Timeout)
	}
	if most := 2*o.Dialer.KeepAlive + o.ConnWriteTimeout; o.Dialer.KeepAlive <= 0 || most > 7*c.Timeout {
		t.Errorf("a watch is closed after up to %v, want %v", most, 7*c.Timeout)
	}
}
