package guard

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/internal/fielderr"
)

// Identity says how callers are identified.
//
// Its functions must be safe for concurrent use. They are called only for requests that the stage
// before authentication has admitted. An owner without an ID is the same as false. A panic is not
// recovered: a verifier that fails in this way must not turn its users into anonymous callers
// without anybody noticing.
type Identity struct {
	// ClientIP finds the client's address.
	ClientIP clientip.Config

	// Sources are the ways to identify a subject, in order; the first that is verified counts. A
	// caller whom none identifies is charged by address. The default is all that are configured,
	// in the order of the constants: SourceContext and SourceCertificate always are.
	Sources []Source

	// KeyHeader is the header of API keys. The default is X-Api-Key. A request with two such
	// lines, or with a key of more than 8 KiB, has no key.
	KeyHeader string

	// Keys are the API keys by their SHA-256 hashes (HashKey, ReadKeys). The ID of an owner becomes
	// the subject "key:ID"; keys of the same ID share its counts. An empty map that is not nil is a
	// list of no keys.
	//
	// Keys must be random, of at least 128 bits: a hash without salt does not protect others.
	Keys map[KeyHash]Owner

	// VerifyKey, if set, verifies API keys that are not in Keys.
	VerifyKey func(ctx context.Context, key string) (Owner, bool)

	// VerifyToken, if set, verifies bearer tokens, for example JSON Web Tokens, and returns what
	// their claims say. The ID of an owner becomes the subject "user:ID". A request with two
	// Authorization lines, with a token that is not of the form of RFC 6750, or with one of more
	// than 8 KiB has no token.
	VerifyToken func(ctx context.Context, token string) (Owner, bool)

	// Certificate, if set, returns the owner of a client certificate whose chain was verified. By
	// default that is its first URI, else its first DNS name, else its common name. It becomes
	// the subject "cert:ID".
	Certificate func(*x509.Certificate) (Owner, bool)
}

// Source is a way to identify a subject.
type Source uint8

// The ways to identify a subject.
const (
	SourceContext     Source = iota + 1 // WithSubject
	SourceKey                           // an API key
	SourceToken                         // a bearer token
	SourceCertificate                   // a client certificate
)

// KeyHash is the SHA-256 hash of an API key.
type KeyHash [sha256.Size]byte

// HashKey returns the hash of an API key.
func HashKey(key string) KeyHash {
	var buf [256]byte // keys that fit are hashed without an allocation
	return sha256.Sum256(append(buf[:0], key...))
}

// Owner is who has a key, a token or a certificate.
type Owner struct {
	ID   string // such as "mobile-app"
	Plan string // such as "pro", or ""
}

// Credentials are what a request brings to identify its sender.
type Credentials struct {
	RemoteAddr string               // the peer, as in http.Request
	Header     http.Header          // with canonical names; may be nil
	TLS        *tls.ConnectionState // nil without TLS
}

// maxCredential is how long a key or a token may be, in bytes. No verifier sees longer ones.
const maxCredential = 8 << 10

// Identifier identifies callers. Make one with NewIdentifier. It is immutable.
type Identifier struct {
	resolver    *clientip.Resolver
	ipv6Bits    int // of an address that make its key
	sources     []Source
	keyHeader   string // as http.Header stores it
	keys        map[KeyHash]Subject
	verifyKey   func(context.Context, string) (Owner, bool)
	verifyToken func(context.Context, string) (Owner, bool)
	certificate func(*x509.Certificate) (Owner, bool)
}

// NewIdentifier returns an Identifier. Its error joins all problems.
func NewIdentifier(c Identity) (*Identifier, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	resolver, err := clientip.New(c.ClientIP)
	if err != nil {
		return nil, err
	}
	i := &Identifier{
		resolver:    resolver,
		ipv6Bits:    netip.MustParsePrefix(resolver.Key(netip.IPv6Unspecified())).Bits(),
		sources:     c.sources(),
		keyHeader:   http.CanonicalHeaderKey(c.keyHeader()),
		keys:        make(map[KeyHash]Subject, len(c.Keys)),
		verifyKey:   c.VerifyKey,
		verifyToken: c.VerifyToken,
		certificate: c.Certificate,
	}
	for hash, owner := range c.Keys {
		i.keys[hash], _ = owner.subject("key:")
	}
	if i.certificate == nil {
		i.certificate = nameOf
	}
	return i, nil
}

// validate returns all problems, as joined *fielderr.Errors. It quotes no hash in full.
func (c Identity) validate() error {
	var problems []error
	report := func(value any, problem string, path ...any) {
		problems = append(problems, &fielderr.Error{Package: "guard", Path: path, Value: value, Problem: problem})
	}
	for _, err := range fielderr.Split(c.ClientIP.Validate()) {
		_, problem, _ := strings.Cut(err.Error(), ": ") // without the name of the package
		report(nil, problem, "ClientIP")
	}
	for place, source := range c.Sources {
		if problem := c.checkSource(place, source); problem != "" {
			report(source, problem, "Sources", place)
		}
	}
	if !isToken(c.keyHeader()) {
		report(c.KeyHeader, "is not the name of a header", "KeyHeader")
	}
	for _, hash := range slices.SortedFunc(maps.Keys(c.Keys), compareHashes) {
		if c.Keys[hash].ID == "" {
			report(nil, "is missing: say who has the key", "Keys", hash.short(), "ID")
		}
	}
	return errors.Join(problems...)
}

// checkSource returns what is wrong with a source, "" if nothing is.
func (c Identity) checkSource(place int, source Source) string {
	switch {
	case source < SourceContext || source > SourceCertificate:
		return "is not a source"
	case slices.Contains(c.Sources[:place], source):
		return "is listed twice"
	case source == SourceKey && !c.hasKeys():
		return "needs Keys or VerifyKey"
	case source == SourceToken && c.VerifyToken == nil:
		return "needs VerifyToken"
	}
	return ""
}

func (c Identity) hasKeys() bool { return c.Keys != nil || c.VerifyKey != nil }

func (c Identity) keyHeader() string { return cmp.Or(c.KeyHeader, "X-Api-Key") }

// sources returns Sources or its default.
func (c Identity) sources() []Source {
	if len(c.Sources) > 0 {
		return slices.Clone(c.Sources)
	}
	list := []Source{SourceContext}
	if c.hasKeys() {
		list = append(list, SourceKey)
	}
	if c.VerifyToken != nil {
		list = append(list, SourceToken)
	}
	return append(list, SourceCertificate)
}

// Address returns the address of the client, behind trusted proxies. It is the zero Addr if that is
// unknown.
func (i *Identifier) Address(c *Credentials) netip.Addr {
	addr, _ := i.resolver.Client(c.RemoteAddr, c.Header)
	return addr
}

// Subject returns the first verified subject among the sources, or that of the address. A key, token
// or certificate that cannot be verified identifies nobody, so that sending others gains nothing.
func (i *Identifier) Subject(ctx context.Context, c *Credentials, addr netip.Addr) Subject {
	if s := i.Verified(ctx, c); s.Verified {
		return s
	}
	return i.AddressSubject(addr)
}

// Verified returns the first verified subject among the sources, and the zero Subject, which is that
// of the address to Guard.Identify, if there is none.
func (i *Identifier) Verified(ctx context.Context, c *Credentials) Subject {
	for _, source := range i.sources {
		if s, ok := i.from(ctx, source, c); ok {
			return s
		}
	}
	return Subject{}
}

// from returns the verified subject of one source.
func (i *Identifier) from(ctx context.Context, source Source, c *Credentials) (Subject, bool) {
	switch source {
	case SourceContext:
		return fromContext(ctx)
	case SourceKey:
		return i.fromKey(ctx, c.Header[i.keyHeader])
	case SourceToken:
		return i.fromToken(ctx, c.Header["Authorization"])
	case SourceCertificate:
		return i.fromCertificate(c.TLS)
	}
	return Subject{}, false
}

func fromContext(ctx context.Context) (Subject, bool) {
	s, _ := SubjectOf(ctx)
	s.Key = fit(s.Key)
	return s, s.Verified && s.Key != ""
}

// fromKey returns the owner of the key in the lines of a header.
//
// It looks the hash of the key up. How long that takes may depend on the hash, but tells nothing
// useful: to try out hashes that begin like that of a valid key, one would need keys that have them,
// and finding those is as hard as breaking SHA-256.
func (i *Identifier) fromKey(ctx context.Context, lines []string) (Subject, bool) {
	if len(lines) != 1 || lines[0] == "" || len(lines[0]) > maxCredential {
		return Subject{}, false
	}
	if s, ok := i.keys[HashKey(lines[0])]; ok {
		return s, true
	}
	if i.verifyKey == nil {
		return Subject{}, false
	}
	owner, ok := i.verifyKey(ctx, lines[0])
	return owner.subjectIf(ok, "key:")
}

// fromToken returns the owner of the bearer token in the Authorization lines.
func (i *Identifier) fromToken(ctx context.Context, lines []string) (Subject, bool) {
	if len(lines) != 1 {
		return Subject{}, false
	}
	token := bearer(lines[0])
	if token == "" || len(token) > maxCredential {
		return Subject{}, false
	}
	owner, ok := i.verifyToken(ctx, token)
	return owner.subjectIf(ok, "user:")
}

// fromCertificate returns the owner of the client's certificate. Only a chain that was verified
// counts: a server may ask for certificates (tls.RequestClientCert) that anybody can make, and those
// are in PeerCertificates only.
func (i *Identifier) fromCertificate(state *tls.ConnectionState) (Subject, bool) {
	if state == nil || len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return Subject{}, false
	}
	owner, ok := i.certificate(state.VerifiedChains[0][0])
	return owner.subjectIf(ok, "cert:")
}

// nameOf is the default of Identity.Certificate.
func nameOf(cert *x509.Certificate) (Owner, bool) {
	switch {
	case len(cert.URIs) > 0:
		return Owner{ID: cert.URIs[0].String()}, true
	case len(cert.DNSNames) > 0:
		return Owner{ID: cert.DNSNames[0]}, true
	}
	return Owner{ID: cert.Subject.CommonName}, true
}

// subject returns the subject of an owner, and false if it has no ID.
func (o Owner) subject(kind string) (Subject, bool) {
	s := verified(kind, o.ID)
	s.Plan = o.Plan
	return s, s.Verified
}

// subjectIf returns the subject of an owner whom a verifier returned together with ok.
func (o Owner) subjectIf(ok bool, kind string) (Subject, bool) {
	if !ok {
		return Subject{}, false
	}
	return o.subject(kind)
}

// AddressSubject returns the subject of an address: the whole of an IPv4 address, the network of an
// IPv6 address, or Unknown. No address is special, also not 0.0.0.0 and those of the machine itself.
func (i *Identifier) AddressSubject(addr netip.Addr) Subject {
	if !addr.IsValid() {
		return Subject{Key: Unknown}
	}
	// This is "ip:" + i.resolver.Key(addr) with one allocation less.
	var buf [64]byte
	key := append(buf[:0], "ip:"...)
	if addr = addr.Unmap(); addr.Is4() {
		return Subject{Key: string(addr.AppendTo(key))}
	}
	network, _ := addr.Prefix(i.ipv6Bits) // without the zone; the length is valid
	return Subject{Key: string(network.AppendTo(key))}
}

// bearer returns the token of a line such as "Bearer mF_9.B5f-4.1JqM", "" if it has none (RFC 6750,
// section 2.1). The scheme may have any case (RFC 9110, section 11.1).
func bearer(line string) string {
	const scheme = "bearer "
	if len(line) <= len(scheme) || !strings.EqualFold(line[:len(scheme)], scheme) {
		return ""
	}
	token := strings.TrimLeft(line[len(scheme):], " ")
	text := strings.TrimRight(token, "=")
	if text == "" || !consistsOf(text, "-._~+/") {
		return ""
	}
	return token
}

// isToken says whether s can be the name of a header (RFC 9110, section 5.6.2).
func isToken(s string) bool { return s != "" && consistsOf(s, "!#$%&'*+-.^_`|~") }

// consistsOf says whether s has only letters and digits of ASCII, and the others.
func consistsOf(s, others string) bool {
	for _, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		digit := c >= '0' && c <= '9'
		if !letter && !digit && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return true
}

// short returns the beginning of a hash, enough to find it in a list.
func (h KeyHash) short() string { return hex.EncodeToString(h[:4]) + "…" }

func compareHashes(a, b KeyHash) int { return slices.Compare(a[:], b[:]) }
