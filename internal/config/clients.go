package config

import (
	"errors"
	"slices"

	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/server"
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
	// envoy.NAME is a domain of Envoy's rate limit service. The default is all policies and
	// domains.
	Policies []string `yaml:"policies" example:"[api, \"team-*\", \"envoy.*\"]"`

	// Guard is whether it may have requests decided by the guard: /v1/auth, /v1/guard and
	// weir.v1.GuardService. The default is true if policies is left out. A client with guard: true
	// may use the policies that it lists, and no others.
	Guard *bool `yaml:"guard" example:"true"`
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
	// keys and set overrides. block is reserved: no call needs it yet.
	Scopes []Scope `yaml:"scopes" example:"[read, write]" jsonschema:"required"`
}

// Scope is something that an operator may do.
type Scope string

func (Scope) choices() []string { return []string{"read", "write", "block"} }

// clients checks the clients and makes the server's of them.
func (c *checker) clients() {
	var holders []holder
	for _, name := range c.keys("clients") {
		client, at := c.file.Clients[name], path{}.key("clients").key(name)
		if c.failed(at) {
			continue
		}
		tokens := c.clientTokens(&client, at)
		holders = append(holders, holder{at, tokens})
		c.out.clients = append(c.out.clients, identity.Client{
			Name: name, Tokens: tokensOf(tokens), Certificate: client.Certificate, Grants: client.grants(),
		})
	}
	_, err := identity.NewClients(c.out.clients)
	c.wrongHolders(err, holders)
	for i, p := range holders {
		c.mayUse(c.file.Clients[c.out.clients[i].Name].Policies, p.at.key("policies"))
	}
}

// grants returns what the client may use.
func (client *Client) grants() identity.Grants {
	g := identity.ParseGrants(client.Policies)
	switch {
	case client.Guard == nil:
	case *client.Guard:
		g.Guard = identity.Granted
	default:
		g.Guard = identity.Withheld
	}
	return g
}

// holder is where a client or an operator is in the configuration.
type holder struct {
	at     path
	tokens []proof
}

// wrongHolders reports the problems of identity.NewClients or NewOperators where they are.
func (c *checker) wrongHolders(err error, holders []holder) {
	var problems identity.Problems
	errors.As(err, &problems)
	for _, p := range problems {
		h := holders[p.Holder]
		switch {
		case p.Field == "name":
			c.wrong(h.at, "the name %s", p.Text)
		case p.Field != "token":
			c.wrong(h.at.key(p.Field), "%s", p.Text)
		case p.Token >= 0:
			c.wrong(h.tokens[p.Token].at, "%s", p.Text)
		case !c.failed(h.at): // else there is one that cannot be read
			c.wrong(h.at, "%s: add token_file, or token: ${NAME}", p.Text)
		}
	}
}

// proof is a token, and its place in the configuration.
type proof struct {
	secret.Secret
	at path
}

func tokensOf(list []proof) (out []secret.Secret) {
	for _, p := range list {
		out = append(out, p.Secret)
	}
	return out
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

// mayUse refuses patterns that fit no policy and no domain of Envoy.
func (c *checker) mayUse(patterns []string, at path) {
	policies, names := c.keys("policies"), c.keys("policies")
	for _, d := range c.file.Envoy {
		names = append(names, (&server.EnvoyDomain{Name: d.Name}).Label())
	}
	for i, p := range patterns {
		grant := identity.ParseGrants([]string{p})
		fits := slices.ContainsFunc(policies, grant.MayPolicy) ||
			slices.ContainsFunc(c.file.Envoy, func(d Domain) bool { return grant.MayDomain(d.Name) })
		if !fits {
			c.wrong(at.item(i), "%s", unknown("no policy is called that", p, names))
		}
	}
}

// operators checks the operators and makes the server's of them.
func (c *checker) operators() {
	admin := c.tree.child("admin")
	if admin == nil || admin.child("tokens") == nil {
		return
	}
	var holders []holder
	for _, p := range admin.child("tokens").pairs {
		operator, at := c.file.Admin.Tokens[p.key], path{}.key("admin").key("tokens").key(p.key)
		if c.failed(at) {
			continue
		}
		tokens := c.token(operator.Token, operator.TokenFile, at)
		out := identity.Operator{Name: p.key, Tokens: tokensOf(tokens)}
		for _, name := range operator.Scopes {
			scope, _ := identity.ParseScope(string(name)) // it is one of choices
			out.Scopes |= scope
		}
		holders = append(holders, holder{at, tokens})
		c.out.operators = append(c.out.operators, out)
	}
	_, err := identity.NewOperators(c.out.operators)
	c.wrongHolders(err, holders)
}
