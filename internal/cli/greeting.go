package cli

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server"
)

// A greeting is what the daemon prints when it listens: addresses, and commands that work with the
// configuration in force. Scripts may read its first line.
type greeting struct {
	config server.Config
	bound  server.Bound
	policy ruleset.Policy // that the commands name, none if there is nothing to show
	client *server.Client // that the commands call as; nil if none is needed
}

func newGreeting(c server.Config, b server.Bound) *greeting {
	g := &greeting{config: c, bound: b}
	policies := c.Live.Policies
	if len(policies) == 0 {
		policies = []ruleset.Policy{server.DefaultPolicy()}
	}
	if len(c.Live.Routes) > 0 && len(policies) == 1 && isDefault(policies[0]) {
		return g // the daemon is a gateway, and its only policy is the one that there is always
	}
	g.policy = policies[0]
	if c.Live.Open {
		return g
	}
	for _, p := range policies { // the first that somebody may use
		i := slices.IndexFunc(c.Live.Clients, func(c server.Client) bool { return c.Grants.MayPolicy(p.Name) })
		if i >= 0 {
			g.policy, g.client = p, &c.Live.Clients[i]
			return g
		}
	}
	if len(c.Live.Clients) > 0 {
		g.policy = ruleset.Policy{} // no client may use one
	}
	return g
}

// isDefault reports whether a policy is the one that there is without any configuration.
func isDefault(p ruleset.Policy) bool {
	d := server.DefaultPolicy()
	d.Mode, d.Rollout = ruleset.Enforce, ruleset.All // as a configuration has them
	d.Limits[0].Algorithm = weir.GCRA
	return reflect.DeepEqual(p, d)
}

// String returns the greeting.
func (g *greeting) String() string {
	b := g.bound
	var text strings.Builder
	fmt.Fprintf(&text, "weir %s is listening on %s\n\n", g.config.Version, origin(b.HTTP, g.config.HTTP.TLS))
	if page := g.page(); page != "" {
		fmt.Fprintf(&text, "  look   %s\n", page)
	}
	for i := range g.config.Live.Routes {
		fmt.Fprintf(&text, "  route  %s\n", g.route(g.config.Live.Routes[i].Pool.Name))
	}
	if g.policy.Name != "" {
		fmt.Fprintf(&text, "  ask    %s\n", g.curl())
	}
	if b.GRPC != nil {
		fmt.Fprintf(&text, "  gRPC   %v\n", b.GRPC)
	}
	switch {
	case b.RESP == nil:
	case g.policy.Name == "":
		fmt.Fprintf(&text, "  Redis  %v\n", b.RESP)
	default:
		fmt.Fprintf(&text, "  Redis  %s\n", g.redisCLI())
	}
	text.WriteString("  stop   Ctrl-C\n\n")
	return text.String()
}

// origin returns where a listener is, as a URL or unix:/path.
func origin(addr net.Addr, secure *server.TLS) string {
	if addr.Network() == "unix" {
		return "unix:" + addr.String()
	}
	return scheme(secure) + addr.String()
}

func scheme(secure *server.TLS) string {
	if secure != nil {
		return "https://"
	}
	return "http://"
}

// page returns the URL of the operators' page, "" if a browser cannot reach it.
func (g *greeting) page() string {
	addr, secure := g.bound.Admin, g.config.Admin.TLS
	if addr == nil {
		addr, secure = g.bound.HTTP, g.config.HTTP.TLS
		if tcp, ok := addr.(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
			return "" // it is not served there
		}
	}
	if addr.Network() == "unix" {
		return ""
	}
	return origin(reached(addr), secure) + "/"
}

// route returns where a route of the gateway is served.
func (g *greeting) route(name string) string {
	path := "/gw/" + name
	if addr := reached(g.bound.HTTP); addr.Network() != "unix" {
		return origin(addr, g.config.HTTP.TLS) + path
	}
	return scheme(g.config.HTTP.TLS) + "localhost" + path + " over " + g.bound.HTTP.String()
}

// reached returns the address by which this machine reaches a listener: one on all addresses is on
// 127.0.0.1, too.
func reached(addr net.Addr) net.Addr {
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: tcp.Port}
	}
	return addr
}

// curl returns a command that calls the daemon over HTTP.
func (g *greeting) curl() string {
	addr, secure := reached(g.bound.HTTP), g.config.HTTP.TLS
	words := []string{"curl -s"}
	if secure != nil {
		words = append(words, trust(addr, secure))
	}
	words = append(words, g.certificate(secure)...)
	base := origin(addr, secure)
	if addr.Network() == "unix" {
		words = append(words, "--unix-socket", quote(addr.String()))
		base = scheme(secure) + "localhost"
	}
	if g.client != nil && len(g.client.Tokens) > 0 {
		words = append(words, fmt.Sprintf(`-H "Authorization: Bearer $%s"`, tokenVariable))
	}
	path := "/v1/check"
	if g.reserves() {
		path = "/v1/reserve"
	}
	return strings.Join(append(words, base+path, "-d", quote(g.body())), " ")
}

// body returns the body of a call for a key.
func (g *greeting) body() string {
	units := g.units()
	if slices.Equal(units, []string{ruleset.Requests}) {
		units = nil // it is the default
	}
	text, err := json.Marshal(struct {
		Policy string            `json:"policy"`
		Key    string            `json:"key"`
		Keys   map[string]string `json:"keys,omitempty"`
		Cost   map[string]int    `json:"cost,omitempty"`
	}{g.policy.Name, exampleKey, each(g.attributes(), exampleOf), each(units, func(string) int { return 1 })})
	if err != nil { // strings and numbers have JSON
		panic(err)
	}
	return string(text)
}

// each returns what of says of each name.
func each[V any](names []string, of func(string) V) map[string]V {
	all := map[string]V{}
	for _, n := range names {
		all[n] = of(n)
	}
	return all
}

// redisCLI returns a command that calls the daemon over the Redis protocol.
func (g *greeting) redisCLI() string {
	addr := reached(g.bound.RESP)
	words := []string{"redis-cli"}
	switch host, port, _ := net.SplitHostPort(addr.String()); {
	case addr.Network() == "unix":
		words = append(words, "-s", quote(addr.String()))
	case host == "127.0.0.1":
		words = append(words, "-p", port)
	default:
		words = append(words, "-h", host, "-p", port)
	}
	if secure := g.config.RESP.TLS; secure != nil {
		words = append(words, "--tls", "--insecure") // it trusts authorities only, and which one signed is not known
		words = append(words, g.certificate(secure)...)
	}
	if g.client != nil && len(g.client.Tokens) > 0 {
		words = append([]string{fmt.Sprintf(`REDISCLI_AUTH="$%s"`, tokenVariable)}, append(words, "--user", quote(g.client.Name))...)
	}
	return strings.Join(append(words, g.command()...), " ")
}

// command returns the command of the Redis protocol that calls for a key.
func (g *greeting) command() []string {
	words := []string{"WEIR.CHECK", g.policy.Name, exampleKey}
	units := g.units()
	if g.reserves() {
		words[0] = "WEIR.RESERVE"
		cost := "0" // which must be there
		if slices.Contains(units, ruleset.Requests) {
			cost = "1"
		}
		words = append(words, cost)
	}
	for _, name := range g.attributes() {
		words = append(words, "BY", quote(name), exampleOf(name))
	}
	for _, unit := range units {
		if unit != ruleset.Requests {
			words = append(words, "UNIT", quote(unit), "1")
		}
	}
	return words
}

// exampleKey is the key that the commands call for.
const exampleKey = "alice"

// exampleOf returns a value of an attribute.
func exampleOf(attribute string) string {
	if attribute == "ip" {
		return "192.0.2.1"
	}
	return "example"
}

// reserves reports whether the policy has slots, which are reserved.
func (g *greeting) reserves() bool {
	return slices.ContainsFunc(g.policy.Limits, func(l ruleset.Limit) bool { return l.Algorithm == weir.Concurrency })
}

// attributes returns the attributes that limits of the policy are by.
func (g *greeting) attributes() (names []string) {
	for _, l := range g.policy.Limits {
		if l.By != "" && !slices.Contains(names, l.By) {
			names = append(names, l.By)
		}
	}
	return names
}

// units returns the units that limits of the policy count.
func (g *greeting) units() (units []string) {
	for _, l := range g.policy.Limits {
		unit := l.Unit
		if unit == "" {
			unit = ruleset.Requests
		}
		if !slices.Contains(units, unit) {
			units = append(units, unit)
		}
	}
	return units
}

// certificate returns the options for the caller's certificate, none if it needs none.
func (g *greeting) certificate(secure *server.TLS) []string {
	hasToken := g.client == nil || len(g.client.Tokens) > 0
	if secure == nil || hasToken && !secure.RequireClient {
		return nil
	}
	return []string{`--cert "$WEIR_CERT"`, `--key "$WEIR_KEY"`}
}

// trust returns curl's option to trust the certificate of a listener, or not to verify it if it is
// not for the listener's address.
func trust(addr net.Addr, secure *server.TLS) string {
	pair, err := tls.LoadX509KeyPair(secure.CertFile, secure.KeyFile)
	host, _, _ := net.SplitHostPort(addr.String())
	if err != nil || pair.Leaf == nil || pair.Leaf.VerifyHostname(host) != nil {
		return "-k"
	}
	return "--cacert " + quote(secure.CertFile)
}

// quote returns a word of a shell command.
func quote(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
