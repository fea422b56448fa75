package redistest

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// An Option changes how servers are started. In a Sentinel or Cluster it holds for
// every server with data.
type Option func(*settings)

// Password makes clients log in by user and password, which may do everything. The
// user "" is Redis's default user, for clients that send a password only; with
// another user, the default one is off. The Sentinels of StartSentinel ask nobody.
func Password(user, password string) Option {
	return func(s *settings) { s.user, s.password = user, password }
}

// TLS makes servers speak TLS only, with certificates from a CA that exists as long
// as the test process; see [Server.TLSConfig]. Client certificates are checked if
// they are sent; Config("tls-auth-clients", "yes") demands them.
func TLS() Option {
	return func(s *settings) { s.tls = true }
}

// UnixSocket makes a server listen on [Server.Socket], too.
func UnixSocket() Option {
	return func(s *settings) { s.socket = true }
}

// Config adds lines to redis.conf, after the helper's own: name and value by turns,
// written as they stand in that file, for example Config("maxmemory", "10mb").
func Config(pairs ...string) Option {
	if len(pairs)%2 != 0 {
		panic(fmt.Sprintf("redistest: Config needs a value for each name, got %q", pairs))
	}
	return func(s *settings) {
		for i := 0; i < len(pairs); i += 2 {
			s.extra = append(s.extra, pairs[i]+" "+pairs[i+1])
		}
	}
}

// NodeTimeout sets the cluster-node-timeout of StartCluster. The default is 1 s.
func NodeTimeout(d time.Duration) Option {
	return func(s *settings) { s.nodeTimeout = d }
}

// settings is what the options say.
type settings struct {
	user, password string // no password = everybody may enter
	tls            bool
	socket         bool
	nodeTimeout    time.Duration
	extra          []string // lines of redis.conf
}

func newSettings(opts []Option) settings {
	s := settings{nodeTimeout: time.Second}
	for _, opt := range opts {
		opt(&s)
	}
	return s
}

// with returns settings with lines before the caller's own.
func (s settings) with(lines ...string) settings {
	s.extra = append(lines, s.extra...)
	return s
}

// lines returns redis.conf for a server on port.
func (s settings) lines(port int) []string {
	lines := []string{
		"bind 127.0.0.1",
		"dir .", // the process runs in the server's directory
		`save ""`,
		"shutdown-timeout 1",          // Stop does not wait long for a paused replica
		"repl-diskless-sync-delay 0",  // one replica per primary: nobody to wait for
		"repl-ping-replica-period 1",  // moves offsets; Cluster hides replicas at offset 0
		"repl-diskless-load disabled", // a replica's old data stay until the new are there
	}
	lines = append(lines, s.listenLines(port)...)
	lines = append(lines, s.userLines()...)
	return append(lines, s.extra...)
}

func (s settings) listenLines(port int) (lines []string) {
	if s.socket {
		lines = append(lines, "unixsocket "+socketFile)
	}
	if !s.tls {
		return append(lines, "port "+strconv.Itoa(port))
	}
	return append(lines,
		"port 0",
		"tls-port "+strconv.Itoa(port),
		"tls-ca-cert-file "+caFile,
		"tls-cert-file "+certFile,
		"tls-key-file "+keyFile,
		"tls-auth-clients optional",
		"tls-replication yes", // Sentinel's own connections follow this, too
		"tls-cluster yes",
	)
}

func (s settings) userLines() []string {
	if s.password == "" {
		return nil
	}
	lines := []string{
		fmt.Sprintf("user %s on #%x ~* &* +@all", s.userName(), sha256.Sum256([]byte(s.password))),
		"masteruser " + s.userName(),
		"masterauth " + quote(s.password),
	}
	if s.userName() != "default" {
		lines = append(lines, "user default off")
	}
	return lines
}

func (s settings) userName() string {
	if s.user == "" {
		return "default"
	}
	return s.user
}

// quote writes any bytes as one word of redis.conf.
func quote(word string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(word) {
		fmt.Fprintf(&b, `\x%02x`, word[i])
	}
	b.WriteByte('"')
	return b.String()
}
