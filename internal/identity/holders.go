package identity

import (
	"crypto/sha256"
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

// NewClients returns the set of clients. Its error is a Problems.
func NewClients(list []Client) (*Clients, error) {
	b := newBuilder[Client]("client")
	for _, c := range list {
		b.add(c.Name, c.Tokens, &c)
		if len(c.Tokens) == 0 && c.Certificate == "" {
			b.wrong("", 0, "has no token and no certificate")
		}
		b.addCertificate(c.Certificate, &c)
	}
	return b.finish()
}

// NewOperators returns the set of operators. Its error is a Problems.
func NewOperators(list []Operator) (*Operators, error) {
	b := newBuilder[Operator]("admin token")
	for _, o := range list {
		b.add(o.Name, o.Tokens, &o)
		if len(o.Tokens) == 0 {
			b.wrong("", 0, "has no token")
		}
		if o.Scopes == 0 {
			b.wrong("scopes", 0, "is missing: add some of [read, write, block]")
		}
	}
	return b.finish()
}

// Problem is something that is wrong with a client or an operator.
type Problem struct {
	Holder int    // the client's or the operator's place in the list
	Field  string // "name", "tokens", "certificate" or "scopes"; "" if it has no credentials
	Token  int    // the token's place, if Field is "tokens"
	Text   string // such as "is also the token of \"shop\""

	title string // of the holder: `client "shop"`
}

func (p *Problem) Error() string {
	switch p.Field {
	case "":
		return p.title + " " + p.Text
	case "tokens":
		return fmt.Sprintf("%s: tokens[%d]: %s", p.title, p.Token, p.Text)
	}
	return p.title + ": " + p.Field + ": " + p.Text
}

// Problems are all that is wrong with a list of clients or operators.
type Problems []*Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

// builder makes a Holders.
type builder[T any] struct {
	*Holders[T]
	kind     string        // "client" or "admin token"
	names    map[*T]string // of those that were added
	taken    map[string]bool
	title    string // of the last one
	problems Problems
}

func newBuilder[T any](kind string) *builder[T] {
	return &builder[T]{
		Holders: &Holders[T]{tokens: map[[sha256.Size]byte]*T{}, certs: map[string]*T{}},
		kind:    kind, names: map[*T]string{}, taken: map[string]bool{},
	}
}

// wrong adds a problem of the last holder.
func (b *builder[T]) wrong(field string, token int, format string, args ...any) {
	b.problems = append(b.problems, &Problem{Holder: b.count - 1, Field: field, Token: token, Text: fmt.Sprintf(format, args...), title: b.title})
}

// add adds a holder with its tokens.
func (b *builder[T]) add(name string, tokens []secret.Secret, holder *T) {
	b.count++
	b.names[holder], b.title = name, fmt.Sprintf("%s %q", b.kind, name)
	if !isName(name) {
		b.wrong("name", 0, "must be 1 to 64 letters, digits or -_.")
	}
	if b.taken[name] {
		b.wrong("name", 0, "is taken")
	}
	b.taken[name] = true
	for i, token := range tokens {
		text := token.Reveal()
		sum := sha256.Sum256([]byte(text))
		switch other, taken := b.tokens[sum]; {
		case len(text) < MinToken:
			b.wrong("tokens", i, "a token has at least %d bytes; openssl rand -hex 32 makes one", MinToken)
		case strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }):
			b.wrong("tokens", i, "a token may contain only printable ASCII, and no spaces")
		case taken:
			b.wrong("tokens", i, "is also the token of %q", b.names[other])
		default:
			b.tokens[sum] = holder
		}
	}
}

// addCertificate lets a holder authenticate by a certificate with this name, if it is not "".
func (b *builder[T]) addCertificate(name string, holder *T) {
	if name == "" {
		return
	}
	if other := b.certs[name]; other != nil {
		b.wrong("certificate", 0, "is also the certificate of %q", b.names[other])
	}
	b.certs[name] = holder
}

func (b *builder[T]) finish() (*Holders[T], error) {
	if len(b.problems) > 0 {
		return nil, b.problems
	}
	return b.Holders, nil
}

// isName reports whether a name is safe in logs and metrics.
func isName(name string) bool {
	const fit = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	return name != "" && len(name) <= 64 && strings.Trim(name, fit) == ""
}
