package identity

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir/secret"
)

// Client is a program that may request decisions.
type Client struct {
	Name string

	// Tokens authenticate the client, each of them by itself. There can be two while one
	// replaces the other.
	Tokens []secret.Secret

	// Certificate is a name that authenticates the client if it is in a verified
	// certificate, as a DNS name or as the common name.
	Certificate string

	// Grants are what it may use. The default is everything.
	Grants Grants
}

// Operator is somebody who administers the daemon.
type Operator struct {
	Name   string
	Tokens []secret.Secret
	Scopes Scope
}

// Scope is what an operator may do, as a set of bits.
type Scope uint8

// The scopes.
const (
	Read  Scope = 1 << iota // look at everything
	Write                   // reset keys, set overrides
	Block                   // reserved: nothing requires it yet
)

var scopeNames = []string{"read", "write", "block"} // in the order of the bits

// UnmarshalText accepts the name of one scope.
func (s *Scope) UnmarshalText(text []byte) error {
	i := slices.Index(scopeNames, string(text))
	if i < 0 {
		return fmt.Errorf("scope %q: must be read, write or block", text)
	}
	*s = 1 << i
	return nil
}

// String returns the scopes' names, separated by commas.
func (s Scope) String() string {
	var names []string
	for i, name := range scopeNames {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// Has reports whether s includes all scopes of other.
func (s Scope) Has(other Scope) bool { return s&other == other }
