package config

import (
	"errors"
	"slices"

	"github.com/weirlimit/weir/internal/fielderr"
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
	TokenFile Path `yaml:"token_file" example:"secrets/checkout"`

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

	// Routes are the routes of the gateway that it may use; a * at the end matches the rest of a name.
	// A client that lists routes may use no other ones, and only the policies that it lists. The default
	// is all routes if policies is left out, too, and otherwise none.
	Routes []string `yaml:"routes" example:"[ethereum]"`

	// Classes are the classes of work that it may use under these policies and routes; a * at the end
	// matches the rest of a name. A request that names no class has the policy's default or, if that is
	// not listed, the only class that is. The default is all classes.
	Classes []string `yaml:"classes" example:"[realtime]"`

	// Guard is whether it may have requests decided by the guard: /v1/auth, /v1/guard and
	// weir.v1.GuardService. The default is true if policies and routes are left out. A client with guard: true
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
	TokenFile Path `yaml:"token_file" example:"secrets/checkout"`

	// Scopes are what the operator may do: read to look at everything, write to reset
	// keys and set overrides. block is reserved: no call needs it yet.
	Scopes []Scope `yaml:"scopes" example:"[read, write]" jsonschema:"required"`
}

// Scope is something that an operator may do.
type Scope struct{ identity.Scope }

func (Scope) choices() []string { return []string{"read", "write", "block"} }

// Clients are programs by name.
type Clients map[string]Client

func (list *Clients) check(c *checker, root path) {
	var holders []holder
	out := &c.out.server.Live.Clients
	for _, name := range c.keys(root) {
		client, at := (*list)[name], root.key(name)
		if c.failed(at) {
			continue
		}
		h := holder{at: at}
		h.add(c.secret(client.Token, client.TokenFile, at, "token"))
		for i, s := range client.Tokens {
			h.add(s.Secret, at.key("tokens").item(i))
		}
		for i, p := range client.TokenFiles {
			where := at.key("token_files").item(i)
			h.add(c.secretFile(p, where), where)
		}
		holders = append(holders, h)
		*out = append(*out, server.Client{Name: name, Tokens: h.tokens, Certificate: client.Certificate, Grants: client.grants()})
	}
	_, err := identity.NewClients(*out)
	c.wrongHolders(err, holders)
	for i, h := range holders {
		client := (*list)[(*out)[i].Name]
		c.mayUse(client.Policies, h.at.key("policies"))
		c.mayRoute(client.Routes, h.at.key("routes"))
		c.mayClass(client.Classes, h.at.key("classes"))
	}
}

// grants returns what the client may use.
func (client *Client) grants() identity.Grants {
	g := identity.ParseGrants(client.Policies)
	g.Routes, g.Classes = client.Routes, client.Classes
	switch {
	case client.Guard == nil:
	case *client.Guard:
		g.Guard = identity.Granted
	default:
		g.Guard = identity.Withheld
	}
	return g
}

// holder is a client or an operator, with the places of its tokens in the file.
type holder struct {
	at     path
	tokens []secret.Secret
	places []path
}

// add adds a token, unless there is none.
func (h *holder) add(token secret.Secret, at path) {
	if !token.IsZero() {
		h.tokens, h.places = append(h.tokens, token), append(h.places, at)
	}
}

// wrongHolders reports the problems of identity.NewClients or NewOperators where they are.
func (c *checker) wrongHolders(err error, holders []holder) {
	for _, e := range fielderr.Split(err) {
		p, _ := errors.AsType[*identity.Problem](e)
		h := holders[p.Holder]
		switch {
		case p.Field == "name":
			c.wrong(h.at, "the name %s", p.Text)
		case p.Field != "token":
			c.wrong(h.at.key(p.Field), "%s", p.Text)
		case p.Token >= 0:
			c.wrong(h.places[p.Token], "%s", p.Text)
		case !c.failed(h.at): // else there is one that cannot be read
			c.wrong(h.at, "%s: add token_file, or token: ${NAME}", p.Text)
		}
	}
}

// mayUse refuses patterns that fit no policy or budget and no domain of Envoy.
func (c *checker) mayUse(patterns []string, at path) {
	policies := slices.Concat(c.keys(path{}.key("policies")), c.keys(path{}.key("budgets")))
	names := slices.Clone(policies)
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

// mayClass refuses patterns that fit no class of any policy.
func (c *checker) mayClass(patterns []string, at path) {
	names := c.classNames()
	for i, p := range patterns {
		grant := identity.Grants{Classes: identity.Patterns{p}}
		if !slices.ContainsFunc(names, grant.MayClass) {
			c.wrong(at.item(i), "%s", unknown("no class is called that", p, names))
		}
	}
}

func (a *Admin) check(c *checker, root path) {
	var holders []holder
	out := &c.out.server.Live.Operators
	root = root.key("tokens")
	for _, name := range c.keys(root) {
		operator, at := a.Tokens[name], root.key(name)
		if c.failed(at) {
			continue
		}
		h := holder{at: at}
		h.add(c.secret(operator.Token, operator.TokenFile, at, "token"))
		holders = append(holders, h)
		one := server.Operator{Name: name, Tokens: h.tokens}
		for _, scope := range operator.Scopes {
			one.Scopes |= scope.Scope
		}
		*out = append(*out, one)
	}
	_, err := identity.NewOperators(*out)
	c.wrongHolders(err, holders)
}
