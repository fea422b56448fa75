package identity

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/weirlimit/weir/secret"
)

// MinToken is the least length of a token.
const MinToken = 32

// Holders finds the holder of a credential. It is immutable. A nil Holders is empty.
type Holders[T any] struct {
	count  int
	tokens map[[sha256.Size]byte]*T
	certs  map[string]*T
}

// Clients are the clients, by their credentials.
type Clients = Holders[Client]

// Operators are the operators, by their tokens.
type Operators = Holders[Operator]

// Len returns how many holders there are.
func (h *Holders[T]) Len() int {
	if h == nil {
		return 0
	}
	return h.count
}

// ByToken returns the holder of a token, or nil.
func (h *Holders[T]) ByToken(token string) *T {
	if h == nil || token == "" {
		return nil
	}
	return h.tokens[sha256.Sum256([]byte(token))]
}

// ByCertificate returns the holder of a verified certificate with one of these names, or nil.
func (h *Holders[T]) ByCertificate(names ...string) *T {
	if h == nil {
		return nil
	}
	for _, name := range names {
		if found := h.certs[name]; found != nil {
			return found
		}
	}
	return nil
}

// NewClients returns the set of clients. Its error joins a *Problem for each problem.
func NewClients(list []Client) (*Clients, error) {
	b := newBuilder[Client]("client")
	for _, c := range list {
		b.add(&c, c.Name, c.Certificate, c.Tokens)
		if len(c.Tokens) == 0 && c.Certificate == "" {
			b.wrong("token", -1, "has no token and no certificate")
		}
	}
	return b.finish()
}

// NewOperators returns the set of operators. Its error joins a *Problem for each problem.
func NewOperators(list []Operator) (*Operators, error) {
	b := newBuilder[Operator]("admin token")
	for _, o := range list {
		b.add(&o, o.Name, "", o.Tokens)
		if len(o.Tokens) == 0 {
			b.wrong("token", -1, "has no token")
		}
		if o.Scopes == 0 {
			b.wrong("scopes", 0, "is missing: add some of [read, write, block]")
		}
	}
	return b.finish()
}

// Problem is something that is wrong with a client or an operator.
type Problem struct {
	Holder int    // the place of the client or operator in the list
	Field  string // "name", "token", "certificate" or "scopes"
	Token  int    // the token's place, if Field is "token"; -1 if there is none
	Text   string // such as `is also the token of "shop"`

	title string // of the holder: `client "checkout"`
}

func (p *Problem) Error() string { return p.title + ": " + p.Field + ": " + p.Text }

// builder makes a Holders.
type builder[T any] struct {
	*Holders[T]
	kind     string            // "client" or "admin token"
	name     string            // of the last holder
	owners   map[string]string // the names of those who have a name, certificate or token
	problems []error
}

func newBuilder[T any](kind string) *builder[T] {
	return &builder[T]{Holders: &Holders[T]{tokens: map[[sha256.Size]byte]*T{}, certs: map[string]*T{}}, kind: kind, owners: map[string]string{}}
}

// add adds a holder. Its certificate may be "".
func (b *builder[T]) add(holder *T, name, certificate string, tokens []secret.Secret) {
	const fit = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_." // safe in logs
	b.count++
	b.name = name
	if name == "" || len(name) > 64 || strings.Trim(name, fit) != "" {
		b.wrong("name", 0, "must be 1 to 64 letters, digits or -_.")
	}
	b.claim("name", 0, name)
	if certificate != "" && b.claim("certificate", 0, certificate) {
		b.certs[certificate] = holder
	}
	for i, token := range tokens {
		text := token.Reveal()
		switch sum := sha256.Sum256([]byte(text)); {
		case len(text) < MinToken:
			b.wrong("token", i, fmt.Sprintf("a token has at least %d bytes; openssl rand -hex 32 makes one", MinToken))
		case strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }):
			b.wrong("token", i, "a token may contain only printable ASCII, and no spaces")
		case b.claim("token", i, string(sum[:])):
			b.tokens[sum] = holder
		}
	}
}

// claim reports whether no other holder has the value of a field. Otherwise it adds a problem.
func (b *builder[T]) claim(field string, token int, value string) bool {
	owner, taken := b.owners[field+" "+value]
	if taken {
		b.wrong(field, token, fmt.Sprintf("is also the %s of %q", field, owner))
		return false
	}
	b.owners[field+" "+value] = b.name
	return true
}

// wrong adds a problem of the last holder.
func (b *builder[T]) wrong(field string, token int, text string) {
	b.problems = append(b.problems, &Problem{b.count - 1, field, token, text, fmt.Sprintf("%s %q", b.kind, b.name)})
}

func (b *builder[T]) finish() (*Holders[T], error) {
	if len(b.problems) > 0 {
		return nil, errors.Join(b.problems...)
	}
	return b.Holders, nil
}
