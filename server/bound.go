package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
)

// A service serves the connections of a listener. An *http.Server is one.
type service interface {
	// Serve returns when the service is stopped, or an error when it cannot go on.
	Serve(l net.Listener) error

	// Shutdown lets calls finish until ctx ends. Its error then is that of ctx.
	Shutdown(ctx context.Context) error

	// Close aborts calls.
	Close() error
}

// A bound is a listener with its service.
type bound struct {
	name string // in the log
	net.Listener
	accepts *capped // the same without TLS
	service service
}

func (b *bound) serve() error { return b.service.Serve(b.Listener) }

// listen binds all addresses, or none.
func (s *Server) listen(ctx context.Context) (where *Bound, all []*bound, err error) {
	where = &Bound{}
	for _, x := range []struct {
		name    string
		at      Listener
		addr    *net.Addr
		service func() service
	}{
		{"http", s.cfg.HTTP, &where.HTTP, func() service { return s.httpServer(s.handlers.http, maxHeaderBytes) }},
		{"grpc", s.cfg.GRPC, &where.GRPC, func() service { s.grpc = s.newGRPC(); return s.grpc }}, // it starts goroutines
		{"resp", s.cfg.RESP, &where.RESP, func() service { return s.resp }},
		{"admin", s.cfg.Admin, &where.Admin, func() service { return s.httpServer(s.handlers.admin, maxAdminHeader) }},
	} {
		if x.at.Address == "" {
			continue
		}
		l, err := x.at.listen(ctx, s.cfg.MaxConns)
		if err != nil {
			return nil, nil, errors.Join(&ListenError{x.name, err}, closeAll(all))
		}
		*x.addr = l.Addr()
		b := &bound{x.name, l, l, x.service()}
		if x.at.TLS != nil {
			b.Listener = tls.NewListener(l, s.tlsConfig(x.name))
		}
		all = append(all, b)
	}
	return where, all, nil
}

// tlsConfig returns a configuration that uses the certificates that were read last.
func (s *Server) tlsConfig(listener string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return s.state.Load().tls[listener], nil
		},
	}
}

func closeAll(all []*bound) (problems error) {
	for _, b := range all {
		problems = errors.Join(problems, b.service.Close())
		_ = b.Close() // the service has closed it, if it served
	}
	return problems
}

// announce logs the addresses and calls OnListen.
func (s *Server) announce(where *Bound, all []*bound) {
	var attrs []any
	for _, b := range all {
		attrs = append(attrs, b.name, b.Addr().String())
	}
	s.cfg.Log.Info("listening", attrs...)
	s.where.Store(where)
	s.cfg.OnListen(*where)
}
