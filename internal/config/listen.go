package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"reflect"
	"strconv"

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
	Mode SocketMode `yaml:"mode" example:"\"0666\""`

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
	prepareListener(n, "http", server.DefaultHTTP)
	prepareListener(n, "grpc", server.DefaultGRPC)
	prepareListener(n, "resp", server.DefaultRESP)
}

// prepareListener gives a listener an address if it has none.
func prepareListener(n *node, name, address string) {
	by := newScalar(address, place{source: fromDefault})
	switch l := n.child(name); {
	case l == nil || l.kind == null:
		n.put(name, by)
	case l.kind == mapping && l.child("address") == nil:
		l.put("address", by)
	}
}

const off = "off" // in place of an address

// ListenerTLS is what TLS 1.2 and later needs. Its files are watched.
type ListenerTLS struct {
	// CertFile is a file with the certificate and those between it and the root, as PEM.
	CertFile Path `yaml:"cert_file" example:"tls/weir.pem" jsonschema:"required"`

	// KeyFile is a file with the certificate's key, as PEM.
	KeyFile Path `yaml:"key_file" example:"tls/weir.key" jsonschema:"required"`

	// ClientCAFile is a file with the authorities, as PEM, whose certificates prove who
	// a caller is.
	ClientCAFile Path `yaml:"client_ca_file" example:"tls/clients.pem"`

	// RequireClient refuses callers without such a certificate.
	RequireClient bool `yaml:"require_client" default:"false" example:"true"`
}

func (l *Listen) check(c *checker, at path) {
	out := &c.out.server
	out.HTTP, out.Reflection, out.MaxConns = c.listener(&l.HTTP, at.key("http")), l.Reflection, l.MaxConnections
	if l.GRPC.Address != off {
		out.GRPC = c.listener(&l.GRPC, at.key("grpc"))
	}
	if l.RESP.Address != off {
		out.RESP = c.listener(&l.RESP, at.key("resp"))
	}
	if l.Admin != nil {
		out.Admin = c.listener(l.Admin, at.key("admin"))
	}
	reached := *out
	reached.Live = server.Live{ // with those that have problems of their own
		Open: c.file.Auth != "", Clients: make([]server.Client, len(c.file.Clients)), Operators: make([]server.Operator, len(c.file.Admin.Tokens)),
	}
	c.invalid(reached.ValidateListeners(), reflect.TypeFor[Listen](), at)
}

// listener makes the server's of a listener. It reads the files, so that a mismatch is reported at
// the start.
func (c *checker) listener(l *Listener, at path) server.Listener {
	out := server.Listener{Address: l.Address, Mode: l.Mode.FileMode, Group: l.Group}
	at = at.key("tls")
	if l.TLS == nil || c.failed(at) || c.incomplete[at.String()] {
		return out
	}
	out.TLS = &server.TLS{CertFile: l.TLS.CertFile.Name, KeyFile: l.TLS.KeyFile.Name, ClientCAFile: l.TLS.ClientCAFile.Name, RequireClient: l.TLS.RequireClient}
	c.certificate(l.TLS.CertFile, l.TLS.KeyFile, at)
	if l.TLS.ClientCAFile.Name != "" {
		c.authorities(l.TLS.ClientCAFile, at.key("client_ca_file"))
	}
	return out
}

// authorities reads certificates.
func (c *checker) authorities(p Path, at path) *x509.CertPool {
	pem, _, ok := c.content(p, at)
	pool := x509.NewCertPool()
	if ok && !pool.AppendCertsFromPEM(pem) {
		c.wrong(at, "%s: has no certificate in it", p.Name)
	}
	return pool
}

// certificate reads a certificate and its key.
func (c *checker) certificate(certFile, keyFile Path, at path) []tls.Certificate {
	cert, _, ok := c.content(certFile, at.key("cert_file"))
	key, _, alsoOK := c.content(keyFile, at.key("key_file"))
	if !ok || !alsoOK {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		c.wrong(at.key("cert_file"), "certificate and key cannot be used: %v", err)
	}
	return []tls.Certificate{pair}
}
