package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/server"
)

// Listen is where the daemon listens.
type Listen struct {
	// HTTP is the address for JSON and forward-auth and, while it is loopback and there is
	// no admin address, for operators, too.
	HTTP Listener `yaml:"http"`

	// GRPC is the address for gRPC, on a transport that costs a third of that on http: the
	// limiter service, Envoy's rate limit service and health. The default is
	// 127.0.0.1:8081; off disables it.
	GRPC Listener `yaml:"grpc"`

	// RESP is the address for the Redis protocol: WEIR.CHECK, CL.THROTTLE and the like. The
	// default is 127.0.0.1:6380; off disables it.
	RESP Listener `yaml:"resp"`

	// Reflection enables server reflection on grpc.
	Reflection bool `yaml:"reflection" default:"false" example:"true"`

	// Admin is the address for operators: /admin/v1, metrics and the page. The default is
	// that of http if that is loopback; otherwise there is none.
	Admin *Listener `yaml:"admin"`

	// MaxConnections is how many connections may be open at once on each address. At most
	// half of them, and a quarter from one IP address, may be unproven: without an
	// authenticated request or, where no token is needed, without any complete one. An
	// unproven connection is closed when it is silent for 10 seconds, and the oldest one makes
	// way for a new connection; if there is none, new connections wait.
	MaxConnections int `yaml:"max_connections" default:"4096" example:"4096" jsonschema:"minimum=1"`
}

// Listener is an address to listen on. It may be written as the address alone.
type Listener struct {
	// Address is host:port or unix:/path. Port 0 takes a free one.
	Address string `yaml:"address" example:"127.0.0.1:8080"`

	// Mode is who may connect to a Unix socket, by the permission to write: "0660" (the
	// default) means the owner and the group.
	Mode *SocketMode `yaml:"mode" example:"\"0666\""`

	// Group is the group of a Unix socket, for example of a proxy. The user that runs the
	// daemon must belong to it. The default is that user's.
	Group string `yaml:"group" example:"www-data"`

	// TLS is the certificate and key. If it is left out, callers connect without TLS.
	TLS *ListenerTLS `yaml:"tls"`
}

// SocketMode are the permissions of a Unix socket.
type SocketMode struct{ fs.FileMode }

func (m *SocketMode) set(text string) error {
	n, err := strconv.ParseUint(text, 8, 32)
	m.FileMode = fs.FileMode(n)
	if err != nil || m.FileMode == 0 || m.FileMode != m.Perm() {
		return errors.New(`must be permissions in octal digits, such as "0660"`)
	}
	return nil
}

func (*SocketMode) pattern() (string, string) { return `^0?[0-7]{3}$`, "0660" }

func (*Listener) shorthand() string { return "address" }

// prepare gives the listeners of callers their addresses.
func (l *Listen) prepare(n *node) {
	prepareListener(n, "http", defaultHTTP)
	prepareListener(n, "grpc", defaultGRPC)
	prepareListener(n, "resp", defaultRESP)
}

// prepareListener gives a listener an address if it has none.
func prepareListener(n *node, name, address string) {
	at := place{source: fromDefault}
	switch l := n.child(name); {
	case l == nil:
		n.put(name, newScalar(address, at))
	case l.kind == null:
		*l = *newScalar(address, at)
	case l.kind == mapping && l.child("address") == nil:
		l.put("address", newScalar(address, at))
	}
}

const (
	defaultHTTP = "127.0.0.1:8080"
	defaultGRPC = "127.0.0.1:8081"
	defaultRESP = "127.0.0.1:6380"

	off = "off" // in place of an address
)

// ListenerTLS is what TLS 1.2 and later needs. Its files are watched.
type ListenerTLS struct {
	// CertFile is a file with the certificate and those between it and the root, as PEM.
	CertFile *Path `yaml:"cert_file" example:"tls/weir.pem" jsonschema:"required"`

	// KeyFile is a file with the certificate's key, as PEM.
	KeyFile *Path `yaml:"key_file" example:"tls/weir.key" jsonschema:"required"`

	// ClientCAFile is a file with the authorities, as PEM, whose certificates prove who
	// a caller is.
	ClientCAFile *Path `yaml:"client_ca_file" example:"tls/clients.pem"`

	// RequireClient refuses callers without such a certificate.
	RequireClient bool `yaml:"require_client" default:"false" example:"true"`
}

// listeners checks where the daemon listens, and who could reach it there.
func (c *checker) listeners() {
	l, at := &c.file.Listen, path{}.key("listen")
	if l.MaxConnections < 1 {
		c.wrong(at.key("max_connections"), "%d must be at least 1", l.MaxConnections)
	}
	c.callers(&l.HTTP, at.key("http"))
	if l.GRPC.Address != off {
		c.callers(&l.GRPC, at.key("grpc"))
	}
	if l.RESP.Address != off {
		c.callers(&l.RESP, at.key("resp"))
	}
	if l.Admin == nil {
		return
	}
	c.listener(l.Admin, at.key("admin"))
	if l.Admin.isRemote() && len(c.file.Admin.Tokens) == 0 {
		c.wrong(at.key("admin").key("address"), "is not loopback, so any host that reaches it could use it: add admin.tokens")
	}
}

// callers checks a listener of the decision APIs.
func (c *checker) callers(l *Listener, at path) {
	c.listener(l, at)
	if l.isRemote() && len(c.file.Clients) == 0 && c.file.Auth == "" {
		c.wrong(at.key("address"), "is not loopback, so any host that reaches it could use it: add clients, or set auth: none")
	}
}

func (c *checker) listener(l *Listener, at path) {
	if c.failed(at) {
		return
	}
	isSocket := strings.HasPrefix(l.Address, "unix:")
	if err := (server.Listener{Address: l.Address}).Validate(); err != nil {
		c.wrong(at.key("address"), "%v", err)
	}
	if !isSocket && (l.Mode != nil || l.Group != "") {
		c.wrong(at, "mode and group are those of a Unix socket: leave them out, or set address: unix:/path")
	}
	switch {
	case l.TLS != nil && isSocket:
		c.wrong(at.key("tls"), "a socket needs no TLS: leave it out")
	case l.TLS != nil:
		c.listenerTLS(l.TLS, at.key("tls"))
	}
}

// isRemote reports whether the address is valid and other machines can reach it.
func (l *Listener) isRemote() bool {
	at := server.Listener{Address: l.Address}
	return at.Validate() == nil && !at.IsLocal()
}

// listenerTLS reads the files, so that a mismatch is reported at the start.
func (c *checker) listenerTLS(t *ListenerTLS, at path) {
	if t.CertFile == nil || t.KeyFile == nil {
		c.wrong(at, "needs cert_file and key_file")
		return
	}
	cert, _, ok := c.files.content(*t.CertFile, c.at(at.key("cert_file")), at.key("cert_file"))
	key, _, alsoOK := c.files.content(*t.KeyFile, c.at(at.key("key_file")), at.key("key_file"))
	if ok && alsoOK {
		if _, err := tls.X509KeyPair(cert, key); err != nil {
			c.wrong(at.key("cert_file"), "certificate and key cannot be used: %v", err)
		}
	}
	switch {
	case t.ClientCAFile != nil:
		c.authorities(*t.ClientCAFile, at.key("client_ca_file"))
	case t.RequireClient:
		c.wrong(at.key("require_client"), "needs client_ca_file: the authorities that sign the certificates of callers")
	}
}

// authorities reads certificates.
func (c *checker) authorities(p Path, at path) *x509.CertPool {
	pem, _, ok := c.files.content(p, c.at(at), at)
	pool := x509.NewCertPool()
	if ok && !pool.AppendCertsFromPEM(pem) {
		c.wrong(at, "%s: has no certificate in it", p.Name)
	}
	return pool
}
