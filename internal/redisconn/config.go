package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/secret"
)

// Config says where Redis is and how to log in. The zero value is a server on this
// machine without a password. Its fields are those of redisstore.Server, which users see,
// so that one converts to the other.
type Config struct {
	// Addrs are the addresses to connect to, each as host:port: the server, some nodes of a
	// Cluster, which name the others, or some Sentinels if Sentinel is set. The path of a
	// Unix socket, /run/redis.sock or unix:///run/redis.sock, must be the only address.
	// The default is 127.0.0.1:6379, with Sentinel 127.0.0.1:26379.
	Addrs []string

	// Sentinel is the name by which the Sentinels at Addrs know the primary, often
	// "mymaster". The default, "", is for servers without Sentinel.
	Sentinel string

	// SentinelUsername and SentinelPassword are for logging in to the Sentinels, which
	// have users of their own. The default is not to log in.
	SentinelUsername string
	SentinelPassword secret.Secret

	// Username and Password are for logging in to the servers with data. The default
	// user is Redis's own, "default". The default password is none: not to log in.
	Username string
	Password secret.Secret

	// DB is the number of the database. A Cluster has only 0. The default is 0.
	DB int

	// TLS makes all connections use TLS, to Sentinels too. Without a ServerName in it,
	// each server must have a certificate for the host it is reached by.
	// The default is nil: no TLS.
	TLS *tls.Config

	// Dial makes the connections to servers and Sentinels, before TLS. network is "tcp", or
	// "unix" for a path. The context ends after DialTimeout at the latest, and Dial must
	// return soon after that. Use it for tunnels and sockets of your own. The default is
	// that of package net, (&net.Dialer{}).DialContext.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// DialTimeout bounds how long it takes to connect, TLS included, and once more how
	// long it takes to log in. The default is 1 s.
	DialTimeout time.Duration

	// Timeout is how long a connection may be silent while a reply is due; then it is
	// closed. A shorter time detects failures sooner, but a server may stall for some
	// 100 ms while it forks. The default is 1 s, the minimum 10 ms.
	Timeout time.Duration

	// ClientName is what CLIENT LIST shows. The default is "weir".
	ClientName string

	// Conns is how many connections are made to each server, a power of two up to
	// 256. Concurrent commands share them in pipelines, so there is no need for many: more
	// connections mean more parallel work in this process, and smaller batches for the
	// server. The default is 4.
	Conns int
}

// The defaults of a Config.
const (
	DefaultAddr         = "127.0.0.1:6379"
	DefaultSentinelAddr = "127.0.0.1:26379"
	DefaultDialTimeout  = time.Second
	DefaultTimeout      = time.Second
	DefaultClientName   = "weir"
	DefaultConns        = 4

	leastTimeout = 10 * time.Millisecond
	mostConns    = 256 // 2^rueidis.MaxPipelineMultiplex
)

// withDefaults returns a Config without zero values that have a meaning, and with sockets
// as plain paths.
func (c Config) withDefaults() Config {
	switch {
	case len(c.Addrs) == 0 && c.Sentinel == "":
		c.Addrs = []string{DefaultAddr}
	case len(c.Addrs) == 0:
		c.Addrs = []string{DefaultSentinelAddr}
	}
	addrs := make([]string, 0, len(c.Addrs))
	for _, addr := range c.Addrs {
		addrs = append(addrs, strings.TrimPrefix(addr, unixScheme))
	}
	c.Addrs = addrs
	if c.DialTimeout == 0 {
		c.DialTimeout = DefaultDialTimeout
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.ClientName == "" {
		c.ClientName = DefaultClientName
	}
	if c.Conns == 0 {
		c.Conns = DefaultConns
	}
	return c
}

// Validate returns everything that is wrong with a Config, as joined *fielderr.Errors. It quotes no
// addresses: a password may have got into one.
func (c Config) Validate() error {
	c = c.withDefaults()
	var problems []error
	wrong := func(bad bool, value any, problem string, path ...any) {
		if bad {
			problems = append(problems, &fielderr.Error{Package: "redisconn", Path: path, Value: value, Problem: problem})
		}
	}
	for i, addr := range c.Addrs {
		if err := checkAddr(addr); err != nil {
			wrong(true, nil, err.Error(), "Addrs", i)
		}
		alone := len(c.Addrs) == 1 && c.Sentinel == "" && c.TLS == nil
		wrong(isSocket(addr) && !alone, nil, "a socket must be the only address, without Sentinel and TLS", "Addrs", i)
	}
	wrong(!isWord(c.Sentinel), c.Sentinel, "want no spaces", "Sentinel")
	wrong(!isWord(c.ClientName), c.ClientName, "want letters, digits and signs without spaces", "ClientName")
	wrong(c.Username != "" && c.Password.IsZero(), c.Username, "is set without a password", "Username")
	wrong(c.SentinelUsername != "" && c.SentinelPassword.IsZero(), c.SentinelUsername, "is set without a password", "SentinelUsername")
	wrong(!c.SentinelPassword.IsZero() && c.Sentinel == "", nil, "is set without the name of a Sentinel's primary", "SentinelPassword")
	wrong(c.DB < 0, c.DB, "must not be negative", "DB")
	wrong(c.DialTimeout < 0, c.DialTimeout, "must not be negative", "DialTimeout")
	wrong(c.Timeout < leastTimeout, c.Timeout, fmt.Sprintf("want %v or more", leastTimeout), "Timeout")
	wrong(c.Conns < 1 || c.Conns > mostConns || bits.OnesCount(uint(c.Conns)) != 1, c.Conns,
		fmt.Sprintf("want a power of two from 1 to %d", mostConns), "Conns")
	return errors.Join(problems...)
}

// isWord says whether Redis takes text as a name: printable ASCII without spaces.
func isWord(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}
