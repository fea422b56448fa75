package config

import (
	"github.com/weirlimit/weir/server"
	"github.com/weirlimit/weir/weirhttp"
)

// Server returns the part of the configuration that is the server's. The caller adds the
// Limiter, the log and what else is not in a file.
func (c *Config) Server() server.Config {
	out := server.Config{
		HTTP:       c.File.Listen.HTTP.server(),
		Reflection: c.File.Listen.Reflection,
		Backend:    string(c.File.Store.Kind),
		MaxConns:   c.File.Listen.MaxConnections,
		Tracing:    c.Tracing,
		Live:       c.Live(),
	}
	if c.File.Listen.GRPC.Address != off {
		out.GRPC = c.File.Listen.GRPC.server()
	}
	if c.File.Listen.RESP.Address != off {
		out.RESP = c.File.Listen.RESP.server()
	}
	if c.File.Listen.Admin != nil {
		out.Admin = c.File.Listen.Admin.server()
	}
	return out
}

// Live returns what a running server can take over from the configuration.
func (c *Config) Live() server.Live {
	out := server.Live{
		Policies:    c.Policies(),
		Clients:     c.clients,
		Open:        c.File.Auth == "none",
		Operators:   c.operators,
		Envoy:       c.File.domains(),
		ForwardAuth: c.File.ForwardAuth.server(),
		Hosts:       c.File.Hosts,
	}
	for style := weirhttp.LegacyOff; style <= weirhttp.LegacyDelta; style++ {
		if style.String() == string(c.File.Headers.Legacy) {
			out.LegacyHeaders = style
		}
	}
	for _, s := range c.settings {
		out.Effective = append(out.Effective, server.Setting(s))
	}
	return out
}

func (l *Listener) server() server.Listener {
	out := server.Listener{Address: l.Address, Group: l.Group}
	if l.Mode != nil {
		out.Mode = l.Mode.FileMode
	}
	if l.TLS == nil {
		return out
	}
	out.TLS = &server.TLS{CertFile: l.TLS.CertFile.Name, KeyFile: l.TLS.KeyFile.Name, RequireClient: l.TLS.RequireClient}
	if l.TLS.ClientCAFile != nil {
		out.TLS.ClientCAFile = l.TLS.ClientCAFile.Name
	}
	return out
}

func (f *ForwardAuth) server() server.ForwardAuth {
	out := server.ForwardAuth{AddressHeader: string(f.AddressHeader), KeyHeader: f.Key.Header, IPv6Prefix: f.IPv6Prefix}
	for _, p := range f.TrustedProxies {
		if p.Unix {
			out.TrustUnix = true
		} else {
			out.Trusted = append(out.Trusted, p.Prefix)
		}
	}
	return out
}
