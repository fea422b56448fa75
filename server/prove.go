package server

import (
	"context"
	"io"
	"net"
	"net/http"

	"github.com/weirlimit/weir/internal/identity"
)

// prove marks the connection of a request as proven if it is authenticated or, where anonymous
// callers are accepted, once it was received completely. The function that it returns is to be
// called when the request is answered.
func (s *Server) prove(c *cappedConn, r *http.Request) (answered func()) {
	auth := s.state.Load().http.Authenticator
	switch {
	case isKnown(auth, credentialsOf(r)):
		c.markProven()
	case isOpen(auth, r.URL.Path):
		c.expectRequest(r)
		return c.markProven
	}
	return func() {}
}

// isKnown reports whether credentials are those of a client or an operator.
func isKnown(a *identity.Authenticator, c identity.Credentials) bool {
	return a.Clients.ByToken(c.Token) != nil || a.Operators.ByToken(c.Token) != nil || a.Clients.ByCertificate(c.Names...) != nil
}

// credentialsOf returns those of a request.
func credentialsOf(r *http.Request) identity.Credentials {
	return identity.Credentials{Token: identity.Bearer(r.Header.Get("Authorization")), Names: identity.Names(r.TLS), Address: r.RemoteAddr}
}

// acceptsAnonymous reports whether callers may request decisions without credentials.
func acceptsAnonymous(a *identity.Authenticator) bool { return a.Open || a.Clients.Len() == 0 }

// isOpen reports whether a path is served to anonymous callers.
func isOpen(a *identity.Authenticator, path string) bool {
	if isAdminPath(path) {
		return a.Operators.Len() == 0
	}
	return acceptsAnonymous(a)
}

// expectRequest marks the connection as proven when the whole request was read, so that the
// connection is not replaced while the request is answered.
func (c *cappedConn) expectRequest(r *http.Request) {
	if r.Body == http.NoBody {
		c.markProven()
		return
	}
	r.Body = &firstBody{r.Body, c}
}

// firstBody is the request body of an unproven connection.
type firstBody struct {
	io.ReadCloser
	conn *cappedConn
}

func (b *firstBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.conn.markProven()
	}
	return n, err
}

// connKey is the context key of a request's connection.
type connKey struct{}

// withConn is for http.Server.ConnContext.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, below(conn))
}

// connOf returns the connection of a request, nil if its listener is not capped.
func connOf(r *http.Request) *cappedConn {
	c, _ := r.Context().Value(connKey{}).(*cappedConn)
	return c
}
