package config

import (
	"github.com/weirlimit/weir/server"
)

// Server returns the part of the configuration that is the server's. The caller adds the
// Limiter, the log and what else is not in a file.
func (c *Config) Server() server.Config {
	out := c.server
	for _, s := range c.settings {
		out.Live.Effective = append(out.Live.Effective, server.Setting{Path: s.Path, Value: s.Value, Source: s.Source})
	}
	return out
}

// Live returns what a running server can take over from the configuration.
func (c *Config) Live() server.Live { return c.Server().Live }

func (l *Listen) check(c *checker, _ path) {
	c.listeners()
	out := &c.out.server
	out.HTTP, out.Reflection, out.MaxConns = l.HTTP.server(), l.Reflection, l.MaxConnections
	if l.GRPC.Address != off {
		out.GRPC = l.GRPC.server()
	}
	if l.RESP.Address != off {
		out.RESP = l.RESP.server()
	}
	if l.Admin != nil {
		out.Admin = l.Admin.server()
	}
}

func (l *Listener) server() server.Listener {
	out := server.Listener{Address: l.Address, Group: l.Group}
	if l.Mode != nil {
		out.Mode = l.Mode.FileMode
	}
	if l.TLS == nil || l.TLS.CertFile == nil || l.TLS.KeyFile == nil {
		return out
	}
	out.TLS = &server.TLS{CertFile: l.TLS.CertFile.Name, KeyFile: l.TLS.KeyFile.Name, RequireClient: l.TLS.RequireClient}
	if l.TLS.ClientCAFile != nil {
		out.TLS.ClientCAFile = l.TLS.ClientCAFile.Name
	}
	return out
}
