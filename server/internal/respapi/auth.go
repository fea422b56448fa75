package respapi

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/internal/resp"
)

// session is the authentication of a connection. It keeps the credentials, and checks them
// again after a reload, so that a revoked token stops working.
type session struct {
	names       []string // in a verified certificate
	user, token string   // of the last successful AUTH

	auth   *identity.Authenticator // which set client and known
	client *identity.Client
	known  bool // the connection may send all commands
}

// authenticated reports whether the authenticator accepts the connection. It sets client, to nil
// for an anonymous connection.
func (w *session) authenticated(d *identity.Authenticator) bool {
	if w.auth != d {
		w.auth = d
		w.client, w.known = d.Find(w.credentials())
	}
	return w.known
}

// credentials returns those of the last successful AUTH or, without one, of the certificate.
func (w *session) credentials() identity.Credentials {
	if w.token != "" {
		return identity.Credentials{Name: w.user, Token: w.token}
	}
	return identity.Credentials{Names: w.names}
}

// noAuth replies to a command that needs authentication.
func (c *conn) noAuth() {
	credentials := c.session.credentials()
	credentials.Address = c.net.RemoteAddr().String()
	c.state.Authenticator.Refuse(credentials)
	c.fail("NOAUTH Authentication required.")
}

// defaultUser is Redis's user for AUTH without a name.
const defaultUser = "default"

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
	state := t.ConnectionState()
	c.session.names = identity.Names(&state)
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
	if user == defaultUser {
		user = ""
	}
	credentials := identity.Credentials{Name: user, Token: token, Address: c.net.RemoteAddr().String()}
	client, _ := d.Find(credentials)
	if client == nil {
		if refusal := d.Refuse(credentials); refusal.Status == http.StatusTooManyRequests {
			return "ERR " + refusal.Problem + "; the next may come after " + refusal.RetryAfter.Round(time.Second).String()
		}
		return "WRONGPASS invalid username-password pair or user is disabled."
	}
	c.session.user, c.session.token = user, token
	c.session.auth, c.session.client, c.session.known = d, client, true
	c.in.SetLimits(resp.Limits{})
	return ""
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
