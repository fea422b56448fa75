package clientip

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Config says whom to believe.
type Config struct {
	// Header is where trusted proxies put the addresses: "x-forwarded-for",
	// "forwarded" (RFC 7239) or "x-real-ip". Only that one is read. The default,
	// "", is none: the client is the peer of the connection.
	Header string

	// Trusted are the networks of the proxies, for example 10.0.0.0/8. The
	// default is none.
	Trusted []netip.Prefix

	// TrustUnix says that peers on a Unix socket, who have no address, are
	// proxies too. The default is that they are not.
	TrustUnix bool

	// IPv6Prefix is how many bits of an IPv6 address make the key, from 48 to
	// 128. Less lets neighbours share a limit, more lets a client have more than
	// one. The default is 64.
	IPv6Prefix int
}

const (
	defaultIPv6Prefix = 64
	leastIPv6Prefix   = 48
)

// Validate returns all problems of the configuration, joined.
func (c Config) Validate() error {
	var problems []error
	if _, ok := formatOf(c.Header); !ok {
		problems = append(problems, fmt.Errorf("clientip: header %q: must be x-forwarded-for, forwarded or x-real-ip, or left out", c.Header))
	}
	if c.Header != "" && len(c.Trusted) == 0 && !c.TrustUnix {
		problems = append(problems, fmt.Errorf("clientip: header %q: is read from trusted peers only, and there are none; name the proxies' networks", c.Header))
	}
	for _, p := range c.Trusted {
		if err := CheckTrusted(p); err != nil {
			problems = append(problems, fmt.Errorf("clientip: trusted %v: %w", p, err))
		}
	}
	if c.IPv6Prefix != 0 && (c.IPv6Prefix < leastIPv6Prefix || c.IPv6Prefix > 128) {
		problems = append(problems, fmt.Errorf("clientip: ipv6 prefix %d: must be between %d and 128", c.IPv6Prefix, leastIPv6Prefix))
	}
	return errors.Join(problems...)
}

// CheckTrusted returns why a network cannot be one of Config.Trusted.
func CheckTrusted(p netip.Prefix) error {
	switch {
	case !p.IsValid():
		return errors.New("is not a network such as 10.0.0.0/8")
	case p.Bits() == 0:
		return errors.New("is everybody, so that anybody could claim any address; name the proxies' networks")
	case p.Addr().Is4In6() && p.Bits() <= mappedBits:
		return errors.New("is more than all of IPv4 written as IPv6; write it as IPv4")
	}
	return nil
}

// mappedBits is how many bits come before the IPv4 address in ::ffff:192.0.2.1.
const mappedBits = 96

// Resolver finds the addresses of clients. Make one with New. It does not change, so
// any number of goroutines may use it.
type Resolver struct {
	header     string // as http.Header stores it, "" for none
	format     format
	trusted    []netip.Prefix
	trustUnix  bool
	ipv6Prefix int
}

// New returns a resolver, or the error of Config.Validate.
func New(c Config) (*Resolver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	r := &Resolver{
		header:     http.CanonicalHeaderKey(c.Header),
		trusted:    slices.Clone(c.Trusted),
		trustUnix:  c.TrustUnix,
		ipv6Prefix: c.IPv6Prefix,
	}
	r.format, _ = formatOf(c.Header)
	if r.ipv6Prefix == 0 {
		r.ipv6Prefix = defaultIPv6Prefix
	}
	for i, p := range r.trusted {
		r.trusted[i] = plainPrefix(p)
	}
	return r, nil
}

// plainPrefix returns a network of IPv4 addresses written as IPv6 as one of IPv4: it
// is compared with addresses that are.
func plainPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mappedBits)
	}
	return p
}

// Peer returns the address of the peer of the connection, of http.Request.RemoteAddr.
// It returns false if there is none, as on a Unix socket.
func (r *Resolver) Peer(remoteAddr string) (netip.Addr, bool) {
	if ap, err := netip.ParseAddrPort(remoteAddr); err == nil {
		return plain(ap.Addr()), true
	}
	addr, err := netip.ParseAddr(remoteAddr)
	return plain(addr), err == nil
}

// Trusts says whether the address is a trusted proxy's.
func (r *Resolver) Trusts(addr netip.Addr) bool {
	addr = plain(addr)
	for _, p := range r.trusted {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// Client returns the address of the client, from http.Request's RemoteAddr and
// Header. It returns false if nobody knows it: if the peer has none and no trusted
// proxy names one.
func (r *Resolver) Client(remoteAddr string, h http.Header) (netip.Addr, bool) {
	peer, ok := r.Peer(remoteAddr)
	if r.header == "" || !r.trustsPeer(peer, ok, remoteAddr) {
		return peer, ok
	}
	client := r.walk(peer, h[r.header])
	return client, client.IsValid()
}

// trustsPeer says whether the header is to be believed.
func (r *Resolver) trustsPeer(peer netip.Addr, hasAddr bool, remoteAddr string) bool {
	if hasAddr {
		return r.Trusts(peer)
	}
	return r.trustUnix && isUnix(remoteAddr)
}

// isUnix says whether an address is that of a Unix socket: none, an abstract name or
// a path.
func isUnix(remoteAddr string) bool {
	return remoteAddr == "" || remoteAddr[0] == '@' || remoteAddr[0] == '/'
}

// walk goes over the entries of all lines from right to left and returns the first
// address that is not trusted, or the last good one if there is none such. Lines
// are one list, in the order in which they came.
func (r *Resolver) walk(last netip.Addr, lines []string) netip.Addr {
	for _, line := range slices.Backward(lines) {
		for more := true; more; {
			var entry string
			line, entry, more = r.format.cut(line)
			addr, ok := r.format.addr(entry)
			if !ok {
				return last
			}
			if last = addr; !r.Trusts(addr) {
				return last
			}
		}
	}
	return last
}

// Key returns the limiter's key of an address: all of an IPv4 address, the network of
// an IPv6 address, and "" of none.
func (r *Resolver) Key(addr netip.Addr) string { return string(r.AppendKey(nil, addr)) }

// AppendKey appends the key of an address to b, for callers that reuse a buffer. Of no
// address it appends nothing.
func (r *Resolver) AppendKey(b []byte, addr netip.Addr) []byte {
	addr = plain(addr)
	if !addr.Is6() {
		return addr.AppendTo(b) // nothing, of the zero Addr
	}
	network, err := addr.Prefix(r.ipv6Prefix)
	if err != nil { // the length was validated
		panic(err)
	}
	return network.AppendTo(b)
}

// plain returns the one form of an address that has several.
func plain(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// format is how a header lists addresses.
type format struct {
	// cut takes the last entry off a list. More says whether others came before.
	cut func(list string) (before, last string, more bool)

	// addr returns the address of an entry, or false if it has none.
	addr func(entry string) (netip.Addr, bool)
}

// formatOf returns the format of a header, and whether it is one that is known.
func formatOf(header string) (format, bool) {
	switch strings.ToLower(header) {
	case "":
		return format{}, true
	case "x-forwarded-for", "x-real-ip":
		return format{cutComma, parseNode}, true
	case "forwarded":
		return format{cutElement, parseElement}, true
	}
	return format{}, false
}
