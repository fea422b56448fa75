package respapi

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"time"

	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/internal/resp"
)

// session is the authentication of a connection. It keeps the credentials, and checks them
// again after a reload, so that a revoked token stops working.
type session struct {
	dns         []string // names in a verified certificate
	common      string
	user, token string // of the last successful AUTH

	auth   *identity.Authenticator // which set client and known
	client *identity.Client
	known  bool // the connection may send all commands
}

// authenticated reports whether the authenticator accepts the connection. It sets client, to nil
// for an anonymous connection.
func (w *session) authenticated(d *identity.Authenticator) bool {
	if w.auth == d {
		return w.known
	}
	w.auth = d
	w.client = w.find(d)
	w.known = w.client != nil || d.Clients.Len() == 0 || d.Open && w.token == ""
	return w.known
}

func (w *session) find(d *identity.Authenticator) *identity.Client {
	if w.token != "" {
		return prove(d, w.user, w.token)
	}
	if c := d.Clients.ByCertificate(w.dns...); c != nil {
		return c
	}
	return d.Clients.ByCertificate(w.common)
}

// prove returns the client with the token and, unless it is defaultUser, the user's name.
func prove(d *identity.Authenticator, user, token string) *identity.Client {
	c := d.Clients.ByToken(token)
	if c == nil || user != defaultUser && user != c.Name {
		return nil
	}
	return c
}

// defaultUser is Redis's user for AUTH without a name.
const defaultUser = "default"

// clientName returns the client's name, "" if it has none.
func (c *conn) clientName() string {
	if c.session.client == nil {
		return ""
	}
	return c.session.client.Name
}

// tlsConn is a *tls.Conn or a wrapper of one.
type tlsConn interface {
	net.Conn
	HandshakeContext(ctx context.Context) error
	ConnectionState() tls.ConnectionState
}

// handshake runs the TLS handshake, if there is TLS, and keeps the names of a verified
// certificate.
func (c *conn) handshake() bool {
	t, ok := c.net.(tlsConn)
	if !ok {
		return true
	}
	_ = t.SetDeadline(time.Now().Add(restTimeout))
	if t.HandshakeContext(c.srv.ctx) != nil {
		return false
	}
	_ = t.SetDeadline(time.Time{})
	if chains := t.ConnectionState().VerifiedChains; len(chains) > 0 {
		c.session.dns, c.session.common = chains[0][0].DNSNames, chains[0][0].Subject.CommonName
	}
	return true
}

// auth answers AUTH [user] token.
func (c *conn) auth(args [][]byte) {
	user, token := defaultUser, string(args[len(args)-1])
	if len(args) == 3 {
		user = string(args[1])
	}
	if problem := c.login(user, token); problem != "" {
		c.fail(problem)
		return
	}
	c.ok()
}

// login authenticates the connection with a user and token. It returns the error reply, "" on
// success. Then they replace earlier credentials.
func (c *conn) login(user, token string) string {
	d := c.state.Authenticator
	if d.Clients.Len() == 0 {
		return "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?"
	}
	from := address(c.net.RemoteAddr())
	if wait, blocked := d.Throttle.Blocked(from); blocked {
		return "ERR too many wrong tokens came from this address; the next may come after " + wait.Round(time.Second).String()
	}
	client := prove(d, user, token)
	if client == nil {
		d.Throttle.Failed(from)
		return "WRONGPASS invalid username-password pair or user is disabled."
	}
	c.session.user, c.session.token = user, token
	c.session.auth, c.session.client, c.session.known = d, client, true
	c.in.SetLimits(resp.Limits{})
	return ""
}

// address returns the part of a peer's address that is throttled: an IPv4 address, or the /64
// network of an IPv6 address, since one host usually owns all of it.
func address(a net.Addr) string {
	from, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return "unix"
	}
	addr := from.Addr().Unmap().WithZone("")
	if network, err := addr.Prefix(64); err == nil && addr.Is6() {
		return network.String()
	}
	return addr.String()
}

// hello answers HELLO [2|3 [AUTH user token] [SETNAME name]].
func (c *conn) hello(args [][]byte) {
	version := c.version
	if len(args) > 1 {
		n, ok := parseInt(args[1])
		switch {
		case !ok:
			c.fail("ERR Protocol version is not an integer or out of range")
			return
		case n != 2 && n != 3:
			c.fail("NOPROTO unsupported protocol version")
			return
		}
		version = resp.Version(n)
	}
	name, problem := c.helloOptions(args[min(2, len(args)):])
	switch {
	case problem != "":
		c.fail(problem)
	case !c.session.authenticated(c.state.Authenticator):
		c.fail("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
	default:
		c.version, c.name = version, name
		c.greet()
	}
}

// helloOptions applies the options and returns the connection's name, or an error reply.
func (c *conn) helloOptions(args [][]byte) (name, problem string) {
	name = c.name
	for len(args) > 0 {
		switch {
		case isWord(args[0], "AUTH") && len(args) > 2:
			if problem := c.login(string(args[1]), string(args[2])); problem != "" {
				return "", problem
			}
			args = args[3:]
		case isWord(args[0], "SETNAME") && len(args) > 1:
			if name = string(args[1]); !isClientName(name) {
				return "", badClientName
			}
			args = args[2:]
		default:
			return "", "ERR Syntax error in HELLO option '" + clip(args[0]) + "'"
		}
	}
	return name, ""
}

// greet replies to HELLO.
func (c *conn) greet() {
	b := c.version.AppendMap(c.out, 7)
	b = resp.AppendBulk(resp.AppendBulk(b, "server"), "weir")
	b = resp.AppendBulk(resp.AppendBulk(b, "version"), redisVersion)
	b = resp.AppendInt(resp.AppendBulk(b, "proto"), int64(c.version))
	b = resp.AppendInt(resp.AppendBulk(b, "id"), c.id)
	b = resp.AppendBulk(resp.AppendBulk(b, "mode"), "standalone")
	b = resp.AppendBulk(resp.AppendBulk(b, "role"), "master")
	c.out = resp.AppendArray(resp.AppendBulk(b, "modules"), 0)
}
