package weirhttp

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/netip"
	"unicode/utf8"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
)

// KeyFunc appends the key of a request, such as its user or its address, to b and returns
// the result. b is empty and has some capacity, so that most keys need no allocation. A
// KeyFunc may read the request but not its body, must not keep b, and may be called by any
// number of goroutines.
//
// A request without a key gets nothing appended. All such requests share one key of the
// policy, so that leaving something out frees nobody from the limit.
//
// Keys longer than weir.MaxKeyBytes, and keys that are not UTF-8, which not every limiter
// accepts, are replaced by their SHA-256 in hexadecimal.
type KeyFunc func(r *http.Request, b []byte) []byte

// Header returns the first value of a header field of the request, for example of "X-Api-Key"
// or "Authorization", as a key. Clients can send any value: unless something has verified it
// before, add a rule by ClientIP, or a client that sends a new value with every request is
// not limited. Header panics if there is no name.
func Header(name string) KeyFunc {
	if name == "" {
		panic("weirhttp: Header: the name is empty")
	}
	name = http.CanonicalHeaderKey(name)
	if name == "Host" { // a server moves it to http.Request.Host
		return func(r *http.Request, b []byte) []byte { return append(b, r.Host...) }
	}
	return func(r *http.Request, b []byte) []byte {
		if values := r.Header[name]; len(values) > 0 {
			b = append(b, values[0]...)
		}
		return b
	}
}

// ClientIP returns the client's address as a key: an IPv4 address, or the /64 network of an
// IPv6 address. Without proxies it is the peer of the connection, and no header is read.
// Behind proxies it is the last address of X-Forwarded-For that is not one of theirs; the
// header of other peers is ignored. For example:
//
//	weirhttp.ClientIP(netip.MustParsePrefix("10.0.0.0/8"))
//
// ClientIP panics if a network is invalid or has all addresses in it. Use ClientIPFrom for
// other headers, other networks of IPv6 and proxies on a Unix socket.
func ClientIP(proxies ...netip.Prefix) KeyFunc {
	c := clientip.Config{Trusted: proxies}
	if len(proxies) > 0 {
		c.Header = "x-forwarded-for"
	}
	resolver, err := clientip.New(c)
	if err != nil {
		panic("weirhttp: ClientIP: " + err.Error())
	}
	return ClientIPFrom(resolver)
}

// ClientIPFrom is ClientIP with a resolver of package clientip.
func ClientIPFrom(resolver *clientip.Resolver) KeyFunc {
	if resolver == nil {
		panic("weirhttp: ClientIPFrom: the resolver is nil")
	}
	return func(r *http.Request, b []byte) []byte {
		addr, _ := resolver.Client(r.RemoteAddr, r.Header)
		return resolver.AppendKey(b, addr) // nothing, if nobody knows the address
	}
}

// Everyone returns one key for all requests, for limits of the whole service.
func Everyone() KeyFunc {
	return func(_ *http.Request, b []byte) []byte { return append(b, "everyone"...) }
}

// Key returns what f does as a key, for example the user whom an authentication has put
// into the request's context.
func Key(f func(*http.Request) string) KeyFunc {
	if f == nil {
		panic("weirhttp: Key: the function is nil")
	}
	return func(r *http.Request, b []byte) []byte { return append(b, f(r)...) }
}

// unknownKey is the key of all requests that have none. The empty key would mean no key
// to a daemon.
const unknownKey = "(unknown)"

// appendKey appends the key of a request to text, and returns it as a string that shares
// the memory of text. Nobody may write to that part of text afterwards.
func appendKey(text []byte, f KeyFunc, r *http.Request) (_ []byte, key string) {
	room, from := text[len(text):], len(text)
	k := f(r, room)
	switch {
	case len(k) == 0:
		return text, unknownKey
	case len(k) > weir.MaxKeyBytes || !utf8.Valid(k):
		sum := sha256.Sum256(k)
		k = hex.AppendEncode(room, sum[:])
	}
	text = append(text, k...) // in place, if k has not outgrown the room
	return text, textString(text[from:])
}
