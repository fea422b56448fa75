package config

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/net/http/httpguts"

	"github.com/weirlimit/weir/clientip"
)

// ForwardAuth is how /v1/auth/{policy} derives the key from the headers of a proxy.
type ForwardAuth struct {
	// TrustedProxies are the proxies whose headers are trusted, as CIDRs such as
	// 10.0.0.0/8, or unix for callers through a socket.
	TrustedProxies []Proxy `yaml:"trusted_proxies" example:"[10.0.0.0/8, unix]"`

	// AddressHeader is the header with the address of the client: x-forwarded-for,
	// forwarded or x-real-ip.
	AddressHeader AddressHeader `yaml:"address_header" default:"x-forwarded-for" example:"forwarded"`

	// Key is the rate-limit key.
	Key ForwardKey `yaml:"key"`

	// IPv6Prefix is how many bits of an IPv6 address identify a client, 48 to 128.
	IPv6Prefix int `yaml:"ipv6_prefix" default:"64" example:"56" jsonschema:"minimum=48,maximum=128"`
}

// AddressHeader is a header with the addresses of clients.
type AddressHeader string

func (AddressHeader) choices() []string { return []string{"x-forwarded-for", "forwarded", "x-real-ip"} }

// ForwardKey is where the rate-limit key comes from.
type ForwardKey struct {
	// Header is the header in which trusted proxies send the key, for example x-user. The
	// default, and the key of requests without that header, is the client's address.
	Header string `yaml:"header" example:"x-user"`
}

// Proxy is a range of addresses, or all that come through Unix sockets.
type Proxy struct {
	Prefix netip.Prefix
	Unix   bool
}

func (p *Proxy) set(text string) (err error) {
	if text == "unix" {
		p.Unix = true
		return nil
	}
	if addr, err := netip.ParseAddr(text); err == nil {
		return fmt.Errorf("must be a range: for this address alone, %v/%d", addr, addr.BitLen())
	}
	p.Prefix, err = netip.ParsePrefix(text)
	switch {
	case err != nil:
		return errors.New("must be a range such as 10.0.0.0/8, or unix")
	case p.Prefix != p.Prefix.Masked():
		return fmt.Errorf("has bits beyond its length: did you mean %v?", p.Prefix.Masked())
	}
	return clientip.CheckTrusted(p.Prefix)
}

func (*Proxy) pattern() (string, string) { return `^(unix|[0-9A-Fa-f:.]+/[0-9]{1,3})$`, "10.0.0.0/8" }

func (f *ForwardAuth) check(c *checker, at path) {
	at = at.key("key").key("header")
	switch {
	case f.Key.Header == "":
	case !httpguts.ValidHeaderFieldName(f.Key.Header):
		c.wrong(at, "%q is no name of a header", f.Key.Header)
	case len(f.TrustedProxies) == 0:
		c.wrong(at, "is believed from trusted_proxies only, and there are none")
	}
	out := &c.out.server.Live.ForwardAuth
	out.AddressHeader, out.KeyHeader, out.IPv6Prefix = string(f.AddressHeader), f.Key.Header, f.IPv6Prefix
	for _, p := range f.TrustedProxies {
		if p.Unix {
			out.TrustUnix = true
		} else {
			out.Trusted = append(out.Trusted, p.Prefix)
		}
	}
}
