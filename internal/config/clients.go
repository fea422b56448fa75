package config

import (
	"crypto/sha256"
	"strings"

	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/secret"
)

// Client is a program that may call the daemon. It authenticates by any of its tokens, so
// that tokens can be rotated, or by a certificate.
type Client struct {
	// Token is the token or, better, ${NAME}: a variable of the environment.
	Token Secret `yaml:"token" example:"\"${CHECKOUT_TOKEN}\""`

	// TokenFile is a file with the token.
	TokenFile *Path `yaml:"token_file" example:"secrets/checkout"`

	// Tokens are further tokens, each as token.
	Tokens []Secret `yaml:"tokens" example:"[\"${OLD}\", \"${NEW}\"]"`

	// TokenFiles are files with further tokens.
	TokenFiles []Path `yaml:"token_files" example:"[secrets/old, secrets/new]"`

	// Certificate is a DNS name or the common name in its certificate, for listeners
	// with client_ca_file.
	Certificate string `yaml:"certificate" example:"checkout.internal"`

	// Policies are those that it may use; a * at the end matches the rest of a name.
	// The default is all.
	Policies []string `yaml:"policies" example:"[api, \"team-*\"]"`
}

// Admin is who may administer the daemon.
type Admin struct {
	// Tokens are the operators, by name. Without any, every caller on the admin address is
	// an operator, and that address must be loopback.
	Tokens map[string]AdminToken `yaml:"tokens" example:"{ops: {token_file: secrets/ops, scopes: [read]}}"`
}

// AdminToken is the token of an operator, and its scopes.
type AdminToken struct {
	// Token is the token or, better, ${NAME}: a variable of the environment.
	Token Secret `yaml:"token" example:"\"${CHECKOUT_TOKEN}\""`

	// TokenFile is a file with the token.
	TokenFile *Path `yaml:"token_file" example:"secrets/checkout"`

	// Scopes are what the operator may do: read to look at everything, write to reset
	// keys and set overrides. No call needs block yet.
	Scopes []Scope `yaml:"scopes" example:"[read, write]" jsonschema:"required"`
}

// Scope is something that an operator may do.
type Scope string

func (Scope) choices() []string { return []string{"read", "write", "block"} }

// clients checks the clients and makes the server's of them.
func (c *checker) clients() {
	owners, certificates := owners{}, map[string]string{}
	for _, name := range c.keys("clients") {
		client, at := c.file.Clients[name], path{}.key("clients").key(name)
		if c.failed(at) {
			continue
		}
		c.checkName(name, at)
		out := identity.Client{Name: name, Certificate: client.Certificate, Policies: client.Policies}
		tokens := c.clientTokens(&client, at)
		if other, taken := certificates[client.Certificate]; taken && client.Certificate != "" {
			c.wrong(at.key("certificate"), "is also the certificate of client %q", other)
		}
		certificates[client.Certificate] = name
		if len(tokens) == 0 && client.Certificate == "" && !c.failed(at) {
			c.wrong(at, "has no token and no certificate: add token_file, or token: ${NAME}")
		}
		out.Tokens = c.reveal(tokens, owners, name)
		c.mayUse(client.Policies, at.key("policies"))
		c.out.clients = append(c.out.clients, out)
	}
}

// proof is a token, and its place in the configuration.
type proof struct {
	secret.Secret
	at path
}

func (c *checker) clientTokens(client *Client, at path) []proof {
	list := c.token(client.Token, client.TokenFile, at)
	for i, s := range client.Tokens {
		list = append(list, proof{s.Secret, at.key("tokens").item(i)})
	}
	for i, p := range client.TokenFiles {
		where := at.key("token_files").item(i)
		if s, ok := c.files.secret(p, c.at(where), where); ok {
			list = append(list, proof{s, where})
		}
	}
	return list
}

// token returns what token and token_file say.
func (c *checker) token(text Secret, file *Path, at path) []proof {
	s := c.files.either(text, file, c.tree, at, "token")
	switch {
	case s.IsZero():
		return nil
	case file != nil:
		return []proof{{s, at.key("token_file")}}
	}
	return []proof{{s, at.key("token")}}
}

// mayUse refuses patterns that fit no policy.
func (c *checker) mayUse(patterns []string, at path) {
	names := c.keys("policies")
	for i, p := range patterns {
		one := identity.Client{Policies: []string{p}}
		used := false
		for _, name := range names {
			used = used || one.May(name)
		}
		if !used {
			c.wrong(at.item(i), "%s", unknown("no policy is called that", p, names))
		}
	}
}

// operators checks the operators and makes the server's of them.
func (c *checker) operators() {
	owners := owners{}
	root := path{}.key("admin").key("tokens")
	if admin := c.tree.child("admin"); admin == nil || admin.child("tokens") == nil {
		return
	}
	for _, p := range c.tree.child("admin").child("tokens").pairs {
		operator, at := c.file.Admin.Tokens[p.key], root.key(p.key)
		if c.failed(at) {
			continue
		}
		c.checkName(p.key, at)
		out := identity.Operator{Name: p.key}
		for _, s := range operator.Scopes {
			scope, err := identity.ParseScope(string(s))
			if err != nil {
				c.wrong(at.key("scopes"), "%v", err)
			}
			out.Scopes |= scope
		}
		if out.Scopes == 0 {
			c.wrong(at.key("scopes"), "is missing: add some of [read, write, block]")
		}
		tokens := c.token(operator.Token, operator.TokenFile, at)
		if len(tokens) == 0 && !c.failed(at) {
			c.wrong(at, "has no token: add token_file, or token: ${NAME}")
		}
		out.Tokens = c.reveal(tokens, owners, p.key)
		c.out.operators = append(c.out.operators, out)
	}
}

// owners are the names that have a token, by token.
type owners map[[sha256.Size]byte]string

// reveal refuses tokens that are weak, cannot be sent, or belong to another client.
func (c *checker) reveal(tokens []proof, owners owners, name string) []secret.Secret {
	var list []secret.Secret
	for _, t := range tokens {
		text := t.Reveal()
		sum := sha256.Sum256([]byte(text))
		switch owner, taken := owners[sum]; {
		case len(text) < identity.MinToken:
			c.wrong(t.at, "a token has at least %d bytes; openssl rand -hex 32 makes one", identity.MinToken)
		case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
			c.wrong(t.at, "a token may contain only printable ASCII, and no spaces")
		case taken:
			c.wrong(t.at, "is also the token of %q", owner)
		}
		owners[sum] = name
		list = append(list, t.Secret)
	}
	return list
}

func (c *checker) checkName(name string, at path) {
	const fit = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	outside := func(r rune) bool { return !strings.ContainsRune(fit, r) }
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, outside) {
		c.wrong(at, "the name must be 1 to 64 letters, digits or -_.")
	}
}
