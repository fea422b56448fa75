package target

import (
	"fmt"
	"slices"
	"strings"
)

// A Protocol says how to speak to a target.
type Protocol int

const (
	Auto    Protocol = iota // by the URL: HTTP1, GRPC or RESP
	HTTP1                   // http, https
	HTTP2                   // the same URLs; over http without an upgrade (h2c)
	GRPC                    // grpc, grpcs; unary calls
	JSONRPC                 // http, https; JSON-RPC 2.0 over HTTP/1
	RESP                    // redis, rediss; what Redis speaks
)

var protocolNames = []string{"auto", "http1", "http2", "grpc", "jsonrpc", "resp"}

// String returns the name that [ParseProtocol] reads.
func (p Protocol) String() string {
	if p < 0 || int(p) >= len(protocolNames) {
		return fmt.Sprintf("Protocol(%d)", int(p))
	}
	return protocolNames[p]
}

// ParseProtocol reads a name, such as "http2".
func ParseProtocol(s string) (Protocol, error) {
	if i := slices.Index(protocolNames, s); i >= 0 {
		return Protocol(i), nil
	}
	return Auto, fmt.Errorf("%q is not a protocol; known are %s", s, strings.Join(protocolNames, ", "))
}

// schemes returns the URL schemes of a protocol.
func (p Protocol) schemes() []string {
	switch p {
	case HTTP1, HTTP2, JSONRPC:
		return []string{"http", "https"}
	case GRPC:
		return []string{"grpc", "grpcs"}
	case RESP:
		return []string{"redis", "rediss"}
	}
	return []string{"http", "https", "grpc", "grpcs", "redis", "rediss"}
}

// protocolOf is what Auto means for a scheme.
func protocolOf(scheme string) Protocol {
	for _, p := range []Protocol{HTTP1, GRPC, RESP} {
		if slices.Contains(p.schemes(), scheme) {
			return p
		}
	}
	return Auto
}

// overHTTP says whether requests are made by net/http.
func (p Protocol) overHTTP() bool { return p == HTTP1 || p == HTTP2 || p == JSONRPC }

// needsHTTP2 says whether a connection must speak HTTP/2.
func (p Protocol) needsHTTP2() bool { return p == HTTP2 || p == GRPC }
