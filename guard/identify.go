package guard

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/netip"

	"github.com/weirlimit/weir/internal/realip"
)

// Identity says how callers are identified.
type Identity struct {
	// ClientIP finds the client's address.
	ClientIP realip.Config

	// Sources are the ways to identify a subject, in order; the first that is verified counts. A
	// caller whom none identifies is charged by address. The default is all that are configured,
	// in the order of the constants.
	Sources []Source

	// KeyHeader is the header of API keys. The default is X-Api-Key.
	KeyHeader string

	// Keys are the API keys by their SHA-256 hashes (HashKey). The ID of an owner becomes the
	// subject "key:ID".
	Keys map[KeyHash]Owner

	// VerifyKey, if set, verifies API keys that are not in Keys.
	VerifyKey func(ctx context.Context, key string) (Owner, bool)

	// VerifyToken, if set, verifies bearer tokens, for example JSON Web Tokens, and returns what
	// their claims say. The ID of an owner becomes the subject "user:ID".
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
type KeyHash [32]byte

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

// Identifier identifies callers. It is immutable.
type Identifier struct{}

// NewIdentifier returns an Identifier. Its error joins all problems.
func NewIdentifier(c Identity) (*Identifier, error) { return &Identifier{}, nil }

// Address returns the address of the client, behind trusted proxies. It is the zero Addr if that is
// unknown.
func (i *Identifier) Address(c *Credentials) netip.Addr { return netip.Addr{} }

// Subject returns the first verified subject among the sources, or that of the address. A key, token
// or certificate that cannot be verified identifies nobody, so that sending others gains nothing.
func (i *Identifier) Subject(ctx context.Context, c *Credentials, addr netip.Addr) Subject {
	return Subject{Key: Unknown}
}

// AddressSubject returns the subject of an address: the whole of an IPv4 address, the network of an
// IPv6 address, or Unknown.
func (i *Identifier) AddressSubject(addr netip.Addr) Subject { return Subject{Key: Unknown} }
