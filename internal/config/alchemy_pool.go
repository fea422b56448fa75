package config

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/weirlimit/weir/budget"
)

// poolVariable is a variable of a pool of accounts: one address of a chain, or a list of them.
var poolVariable = regexp.MustCompile(`^([A-Z][A-Z0-9]*)_RPC_(PRIMARY|URLS)$`)

// An alchemyPool is the addresses of a chain.
type alchemyPool struct {
	chain     string // in lower case
	addresses []alchemyAddress
	listed    int // how many are in a list, each of which needs a variable
}

// An alchemyAddress is where a chain is served, for an account.
type alchemyAddress struct {
	variable string // that has it, or must have it
	account  string // what is the same for all addresses of an account, "" if it is not one of Alchemy
}

// pools returns the pools of the variables, by chain.
func (in *alchemyImport) pools() (list []*alchemyPool) {
	values := map[string]string{}
	for _, text := range in.list {
		if variable, value, _ := strings.Cut(text, "="); poolVariable.MatchString(variable) && value != "" {
			values[variable] = strings.TrimSpace(value)
		} else {
			delete(values, variable) // the environment replaces the file
		}
	}
	for _, variable := range slices.Sorted(maps.Keys(values)) {
		chain := strings.ToLower(poolVariable.FindStringSubmatch(variable)[1])
		if n := len(list); n == 0 || list[n-1].chain != chain { // PRIMARY comes before URLS
			list = append(list, &alchemyPool{chain: chain})
		}
		in.addresses(list[len(list)-1], variable, values)
	}
	return slices.DeleteFunc(list, func(p *alchemyPool) bool { return len(p.addresses) == 0 })
}

// addresses adds the addresses of a variable. One that is in both variables of a chain is there once.
func (in *alchemyImport) addresses(p *alchemyPool, variable string, values map[string]string) {
	prefix := strings.ToUpper(p.chain) + "_RPC_"
	if strings.HasSuffix(variable, "_PRIMARY") {
		if text := values[variable]; in.isAddress(text, variable, 0) {
			p.addresses = append(p.addresses, alchemyAddress{variable, accountOf(text)})
		}
		return
	}
	seen := []string{}
	primary := values[prefix+"PRIMARY"]
	for i, text := range strings.Split(values[variable], ",") {
		switch text = strings.TrimSpace(text); {
		case text == primary && primary != "":
		case !in.isAddress(text, variable, i+1):
		case slices.Contains(seen, text):
			in.poolProblem(variable, "address %d is there twice", i+1)
		default:
			seen = append(seen, text)
			p.listed = i + 1
			p.addresses = append(p.addresses, alchemyAddress{fmt.Sprintf("%s%d", prefix, i+1), accountOf(text)})
		}
	}
}

// isAddress notes a problem if a text is no address. A list may end with a comma.
func (in *alchemyImport) isAddress(text, variable string, number int) bool {
	u, err := url.Parse(text)
	switch {
	case text == "":
		return false
	case err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "":
		return true
	case number > 0:
		in.poolProblem(variable, "address %d is not a URL that begins with https:// or http://", number)
	default:
		in.poolProblem(variable, "is not a URL that begins with https:// or http://")
	}
	return false
}

func (in *alchemyImport) poolProblem(variable, format string, args ...any) {
	at, where := in.places[variable], path{}.key(variable)
	if at.line == 0 {
		where = nil
	}
	in.complain(at, where, format, args...)
}

// accountOf returns what is the same for all addresses of an account with Alchemy, which is their key, "" if an address
// is not one of Alchemy.
func accountOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() != "alchemy.com" && !strings.HasSuffix(u.Hostname(), ".alchemy.com") {
		return ""
	}
	return u.Path[strings.LastIndexByte(u.Path, '/')+1:]
}

// accounts returns the accounts of pools in their order.
func accounts(pools []*alchemyPool) (list []string) {
	for _, p := range pools {
		for _, a := range p.addresses {
			if a.account != "" && !slices.Contains(list, a.account) {
				list = append(list, a.account)
			}
		}
	}
	return list
}

// budgetName returns the name of the budget of the n-th of some accounts.
func budgetName(n, of int) string {
	if of == 1 {
		return "alchemy"
	}
	return fmt.Sprintf("alchemy-%d", n+1)
}

// budgetsNode returns a budget for each account.
func budgetsNode(c *budget.Config, list []string) *node {
	out := newMapping(place{})
	for i := range list {
		out.put(budgetName(i, len(list)), budgetNode(c))
	}
	return out
}

// routesNode returns a route for each pool.
func routesNode(pools []*alchemyPool, list []string) *node {
	out := newMapping(place{})
	for _, p := range pools {
		route, endpoints := newMapping(place{}), &node{kind: sequence}
		route.put("kind", newScalar("jsonrpc", place{}))
		route.put("strategy", newScalar("sticky", place{}))
		route.put("cooldown", newScalar("60s", place{}))
		for i, a := range p.addresses {
			e := newMapping(place{})
			e.put("alias", newScalar(fmt.Sprintf("%s-%d", p.chain, i+1), place{}))
			rpc := newScalar("${"+a.variable+"}", place{})
			rpc.quoted = true
			e.put("rpc", rpc)
			if a.account != "" {
				e.put("budget", newScalar(budgetName(slices.Index(list, a.account), len(list)), place{}))
			}
			endpoints.items = append(endpoints.items, e)
		}
		route.put("upstreams", endpoints)
		out.put(p.chain, route)
	}
	return out
}

// poolComments are what is to be known of the routes, as comments: first the commands that set the variables they refer
// to. file has those of the file, which a shell must read first.
func (in *alchemyImport) poolComments(pools []*alchemyPool, file string) string {
	commands := []string{}
	if in.isInFile(pools) {
		commands = append(commands, "set -a; . "+shellPath(file)+"; set +a")
	}
	for _, p := range pools {
		if p.listed == 0 {
			continue
		}
		prefix, names := strings.ToUpper(p.chain)+"_RPC_", ""
		for i := range p.listed {
			names += fmt.Sprintf(" %s%d", prefix, i+1)
		}
		commands = append(commands, fmt.Sprintf("IFS=', ' read -r%s _ <<<\"$%sURLS\"; export%[1]s", names, prefix))
	}
	text := ""
	if len(commands) > 0 {
		text = "# Before the daemon starts, set the variables that the routes refer to, in bash:\n#   " + strings.Join(commands, "\n#   ") + "\n"
	}
	return text + "# strategy: balanced uses all accounts at once, before any of them refuses: docs/gateway.md.\n"
}

// isInFile reports whether addresses are in the file, and not only in the environment.
func (in *alchemyImport) isInFile(pools []*alchemyPool) bool {
	return slices.ContainsFunc(pools, func(p *alchemyPool) bool {
		prefix := strings.ToUpper(p.chain) + "_RPC_"
		return in.places[prefix+"PRIMARY"].line > 0 || in.places[prefix+"URLS"].line > 0
	})
}

// shellPath returns a file as the argument of the shell's ".": one without a slash would be looked for in PATH.
func shellPath(file string) string {
	if file == Stdin {
		return "./FILE"
	}
	if !strings.Contains(file, "/") {
		file = "./" + file
	}
	if plainPath.MatchString(file) {
		return file
	}
	return "'" + strings.ReplaceAll(strings.Map(oneColumn, file), "'", `'\''`) + "'"
}

var plainPath = regexp.MustCompile(`^[A-Za-z0-9_./@%+=:,-]+$`)

// poolEnviron returns the variables that the routes refer to, for a check of the result.
func poolEnviron(pools []*alchemyPool) (environ []string) {
	for _, p := range pools {
		for _, a := range p.addresses {
			environ = append(environ, a.variable+"=https://rpc.example.org")
		}
	}
	return environ
}
