package identity

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir/secret"
)

// MinToken is the least length of a token.
const MinToken = 32

// Client is a program that may request decisions.
type Client struct {
	Name string

	// Tokens authenticate the client, each of them by itself. There can be two while one
	// replaces the other.
	Tokens []secret.Secret

	// Certificate is a name that authenticates the client if it is in a verified
	// certificate, as a DNS name or as the common name.
	Certificate string

	// Policies are those that it may use; a * at the end stands for the rest of a name.
	// None means all.
	Policies []string
}

// May reports whether the client may use a policy.
func (c *Client) May(policy string) bool {
	if len(c.Policies) == 0 {
		return true
	}
	return slices.ContainsFunc(c.Policies, func(p string) bool {
		prefix, open := strings.CutSuffix(p, "*")
		return p == policy || open && strings.HasPrefix(policy, prefix)
	})
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
	Block                   // no call needs it yet
)

var scopeNames = []struct {
	name  string
	scope Scope
}{{"read", Read}, {"write", Write}, {"block", Block}}

// ParseScope returns the scope with a name.
func ParseScope(name string) (Scope, error) {
	for _, s := range scopeNames {
		if s.name == name {
			return s.scope, nil
		}
	}
	return 0, fmt.Errorf("scope %q: must be read, write or block", name)
}

// String returns the scopes' names, separated by commas.
func (s Scope) String() string {
	var names []string
	for _, n := range scopeNames {
		if s&n.scope != 0 {
			names = append(names, n.name)
		}
	}
	return strings.Join(names, ",")
}

// Has reports whether s includes all scopes of other.
func (s Scope) Has(other Scope) bool { return s&other == other }

// Clients finds a client by its credentials. It is immutable. A nil Clients is empty.
type Clients struct {
	list   []*Client
	tokens map[[sha256.Size]byte]*Client
	certs  map[string]*Client
}

// NewClients returns the set of clients. Its error joins all problems.
func NewClients(list []Client) (*Clients, error) {
	c := &Clients{tokens: map[[sha256.Size]byte]*Client{}, certs: map[string]*Client{}}
	var problems []error
	names := map[string]bool{}
	for i := range list {
		client := list[i]
		problems = append(problems, checkName("client", client.Name, names))
		if len(client.Tokens) == 0 && client.Certificate == "" {
			problems = append(problems, fmt.Errorf("client %q: has neither a token nor a certificate, so it can prove nothing", client.Name))
		}
		if client.Certificate != "" {
			if c.certs[client.Certificate] != nil {
				problems = append(problems, fmt.Errorf("client %q: its certificate is another client's", client.Name))
			}
			c.certs[client.Certificate] = &client
		}
		problems = append(problems, addTokens("client", client.Name, client.Tokens, c.tokens, &client))
		c.list = append(c.list, &client)
	}
	return c, errors.Join(problems...)
}

// Len returns how many clients there are.
func (c *Clients) Len() int {
	if c == nil {
		return 0
	}
	return len(c.list)
}

// ByToken returns the client with this token, or nil.
func (c *Clients) ByToken(token string) *Client {
	if c == nil || token == "" {
		return nil
	}
	return c.tokens[sha256.Sum256([]byte(token))]
}

// ByCertificate returns the client with one of a verified certificate's names, or nil.
func (c *Clients) ByCertificate(names ...string) *Client {
	if c == nil {
		return nil
	}
	for _, name := range names {
		if client := c.certs[name]; client != nil && name != "" {
			return client
		}
	}
	return nil
}

// Operators finds an operator by a token. It is immutable. A nil Operators is empty.
type Operators struct {
	list   []*Operator
	tokens map[[sha256.Size]byte]*Operator
}

// NewOperators returns the set of operators. Its error joins all problems.
func NewOperators(list []Operator) (*Operators, error) {
	o := &Operators{tokens: map[[sha256.Size]byte]*Operator{}}
	var problems []error
	names := map[string]bool{}
	for i := range list {
		operator := list[i]
		problems = append(problems, checkName("admin token", operator.Name, names))
		if operator.Scopes == 0 {
			problems = append(problems, fmt.Errorf("admin token %q: has no scopes; give it read, write or block", operator.Name))
		}
		if len(operator.Tokens) == 0 {
			problems = append(problems, fmt.Errorf("admin token %q: there is none", operator.Name))
		}
		problems = append(problems, addTokens("admin token", operator.Name, operator.Tokens, o.tokens, &operator))
		o.list = append(o.list, &operator)
	}
	return o, errors.Join(problems...)
}

// Len returns how many operators there are.
func (o *Operators) Len() int {
	if o == nil {
		return 0
	}
	return len(o.list)
}

// ByToken returns the operator with this token, or nil.
func (o *Operators) ByToken(token string) *Operator {
	if o == nil || token == "" {
		return nil
	}
	return o.tokens[sha256.Sum256([]byte(token))]
}

// checkName refuses names with characters that are unsafe in logs, and duplicates.
func checkName(kind, name string, taken map[string]bool) error {
	const fit = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	outside := func(c rune) bool { return !strings.ContainsRune(fit, c) }
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, outside) {
		return fmt.Errorf("%s %q: a name has 1 to 64 letters, digits and -_. and nothing else", kind, name)
	}
	if taken[name] {
		return fmt.Errorf("%s %q: the name is taken", kind, name)
	}
	taken[name] = true
	return nil
}

// addTokens adds the tokens of one holder to the index.
func addTokens[T any](kind, name string, tokens []secret.Secret, owners map[[sha256.Size]byte]*T, owner *T) error {
	for _, token := range tokens {
		text := token.Reveal()
		switch sum := sha256.Sum256([]byte(text)); {
		case len(text) < MinToken:
			return fmt.Errorf("%s %q: a token has at least %d bytes; openssl rand -hex 32 makes one", kind, name, MinToken)
		case strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }):
			return fmt.Errorf("%s %q: a token may have only printable ASCII, and no spaces", kind, name)
		case owners[sum] != nil:
			return fmt.Errorf("%s %q: its token is another's, too", kind, name)
		default:
			owners[sum] = owner
		}
	}
	return nil
}
