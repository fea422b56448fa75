package redisstore

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/weirlimit/weir/internal/redisconn"
	"github.com/weirlimit/weir/secret"
)

// Server says where Redis is, how to log in and how to connect. The zero value is a server
// on this machine without a password. tiered/redistier takes the same type.
type Server struct {
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

// ParseServer parses a Server from text: "host:port", several of them
// separated by commas, "redis://user:password@host:port/0", "rediss://…" for TLS,
// or the path of a Unix socket. Its errors do not quote text, which may contain a password.
func ParseServer(text string) (Server, error) {
	c, err := redisconn.Parse(text)
	return Server(c), err
}

// Validate returns everything that is wrong with the fields. It quotes no addresses: one
// may contain a password by mistake.
func (s Server) Validate() error { return redisconn.Config(s).Validate() }
