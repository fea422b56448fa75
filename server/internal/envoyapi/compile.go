package envoyapi

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
)

// Rules are domains that were compiled together. They are immutable.
type Rules struct {
	domains  map[string]*domain
	policies map[string]*weir.Policy // the limiter's policies, without overrides in requests
}

// Policies returns the limiter's policies, without those of limit overrides in requests.
func (r *Rules) Policies() []*weir.Policy { return slices.Collect(maps.Values(r.policies)) }

// domain is a compiled Domain.
type domain struct {
	Domain
	root    *node
	observe *ruleset.Variant // under which decisions are reported
}

// node is a node of the tree of descriptors: the rules after some entries.
type node struct {
	path     []string // the domain, then keys and values
	shared   []string // for each entry, the pattern whose values share a counter, or ""; nil if there is none
	rank     int      // of the patterns that match a value, the one with the lowest applies
	limit    *limit   // nil for none
	exact    map[entry]*node
	prefixes map[entry]*node      // patterns with one *, at the end, by the value without it
	lengths  map[string][]int     // of a key's prefixes
	patterns map[string][]pattern // the other patterns, by key
}

type entry struct{ key, value string }

// pattern is a value with * in it, split there.
type pattern struct {
	parts []string
	node  *node
}

// limit is a compiled Limit.
type limit struct {
	Limit
	period
	mode   mode
	shared []string     // of the node
	policy *weir.Policy // nil if nothing is charged: all hits are admitted, or none

	// apart, unless it is 0, is part of the key: limit overrides in requests with different
	// periods have separate counters. It is not part of the policy's name, because callers
	// could then create any number of policies, which are never removed.
	apart uint32
}

// mode is the effect of a limit's refusal.
type mode uint8

const (
	ordinary mode = iota
	shadow
	quota
)

// Compile compiles domains. Its error joins a *fielderr.Error for each problem, with paths such as
// {0, "Descriptors", 1, "Limit", "Unit"}. Policies that did not change since previous, which may be
// nil, are reused from there.
func Compile(domains []Domain, previous *Rules) (*Rules, error) {
	c := &compiler{previous: previous, rules: &Rules{domains: map[string]*domain{}, policies: map[string]*weir.Policy{}}}
	for i := range domains {
		c.domain(domains[i], at{i})
	}
	if len(c.problems) > 0 {
		return nil, errors.Join(c.problems...)
	}
	return c.rules, nil
}

type compiler struct {
	previous *Rules
	rules    *Rules
	current  *domain
	problems []error
}

// at is where a rule is in the list of domains.
type at []any

func (a at) below(steps ...any) at { return append(slices.Clip(a), steps...) }

func (c *compiler) wrong(where at, format string, args ...any) {
	c.problems = append(c.problems, fielderr.New("envoy", fmt.Sprintf(format, args...), where...))
}

func (c *compiler) domain(d Domain, where at) {
	switch {
	case d.Name == "":
		c.wrong(where.below("Name"), "a domain needs the name that Envoy sends")
		return
	case c.rules.domains[d.Name] != nil:
		c.wrong(where.below("Name"), "%q is there twice: put the descriptors of both together", d.Name)
		return
	}
	observe, err := call.Observed(Label(d.Name))
	if err != nil {
		c.wrong(where.below("Name"), "%v", err)
		return
	}
	c.current = &domain{Domain: d, root: &node{path: []string{d.Name}}, observe: observe}
	c.children(c.current.root, d.Descriptors, where)
	c.rules.domains[d.Name] = c.current
}

func (c *compiler) children(n *node, list []Descriptor, where at) {
	seen := map[entry]int{}
	for i := range list {
		d, here := &list[i], where.below("Descriptors", i)
		switch first, twice := seen[entry{d.Key, d.Value}]; {
		case d.Key == "":
			c.wrong(here.below("Key"), "a descriptor needs a key, such as remote_address")
		case twice:
			c.wrong(here, "is for the same key and value as descriptors[%d] beside it: only one can count", first)
		case d.ShareThreshold && !strings.Contains(d.Value, "*"):
			c.wrong(here.below("ShareThreshold"), "is for values with a *, whose counter all matching values share")
		default:
			seen[entry{d.Key, d.Value}] = i
			c.child(n, d, here, i)
		}
	}
}

func (c *compiler) child(n *node, d *Descriptor, where at, order int) {
	child := &node{path: append(slices.Clip(n.path), d.Key, d.Value), shared: n.shared, rank: order}
	if !c.current.Compat { // the most specific first; envoyproxy/ratelimit takes the first of the file
		child.rank = -len(strings.ReplaceAll(d.Value, "*", ""))<<32 + order
	}
	if d.ShareThreshold {
		child.shared = make([]string, len(n.path)/2+1)
		copy(child.shared, n.shared)
		child.shared[len(n.path)/2] = d.Value
	}
	child.limit = c.limit(child, d, where)
	c.children(child, d.Descriptors, where)
	n.add(d, child)
}

// add adds the child for the entries that d matches.
func (n *node) add(d *Descriptor, child *node) {
	switch parts := strings.Split(d.Value, "*"); {
	case len(parts) == 1:
		if d.Value == "" {
			child.rank = math.MaxInt
		}
		n.exact = put(n.exact, entry{d.Key, d.Value}, child)
	case len(parts) == 2 && parts[1] == "":
		n.prefixes = put(n.prefixes, entry{d.Key, parts[0]}, child)
		if !slices.Contains(n.lengths[d.Key], len(parts[0])) {
			n.lengths = put(n.lengths, d.Key, append(n.lengths[d.Key], len(parts[0])))
		}
	default:
		n.patterns = put(n.patterns, d.Key, append(n.patterns[d.Key], pattern{parts, child}))
	}
}

// put sets a value in a map, which may be nil.
func put[K comparable, V any](m map[K]V, key K, value V) map[K]V {
	if m == nil {
		m = map[K]V{}
	}
	m[key] = value
	return m
}

func (c *compiler) limit(n *node, d *Descriptor, where at) *limit {
	if d.Limit == nil {
		return nil
	}
	l := &limit{Limit: *d.Limit, period: period{d.Limit.Unit, max(1, d.Limit.UnitMultiplier)}, shared: n.shared}
	switch {
	case d.ShadowMode:
		l.mode = shadow
	case d.QuotaMode:
		l.mode = quota
	}
	where = where.below("Limit")
	c.replaces(l, where)
	if l.Unlimited {
		if l.Unit != 0 || l.UnitMultiplier != 0 {
			c.wrong(where.below("Unlimited"), "leaves nothing to count: remove the unit, or unlimited")
		}
		return l
	}
	converted, err := limiterLimit(l.RequestsPerUnit, l.period, c.current.Compat)
	switch {
	case l.Unit == 0:
		c.wrong(where.below("Unit"), "is missing: add second, minute, hour, day, week, month or year")
	case err != nil:
		c.wrong(where.below("UnitMultiplier"), "%v", err)
	case converted != nil:
		l.policy = c.policy(n.path, *converted, where)
	}
	return l
}

func (c *compiler) replaces(l *limit, where at) {
	for i, name := range l.Replaces {
		switch here := where.below("Replaces", i); {
		case name == "":
			c.wrong(here, "needs the name of a limit")
		case name == l.Name:
			c.wrong(here, "a limit cannot replace itself")
		case slices.Contains(l.Replaces[:i], name):
			c.wrong(here, "is there twice")
		}
	}
}

// limiterLimit returns the weir.Limit of an Envoy limit, nil if there is nothing to charge.
//
// With compat, refused hits count, and the limit has one unit more than is admitted: the limit is
// exceeded when that unit is used, by the first refused hit.
func limiterLimit(requests uint32, p period, compat bool) (*weir.Limit, error) {
	length, err := p.length()
	if err != nil {
		return nil, err
	}
	rate := int64(requests)
	if compat {
		rate++
	}
	if rate == 0 {
		return nil, nil
	}
	return &weir.Limit{Rate: rate, Per: weir.Every(length), Algorithm: weir.FixedWindow}, nil
}

// policy makes a policy, or returns the same one of the previous rules.
func (c *compiler) policy(path []string, converted weir.Limit, where at) *weir.Policy {
	p, err := weir.NewPolicy(policyName(path), converted)
	if err != nil {
		c.wrong(where, "%v", err)
		return nil
	}
	if c.previous != nil {
		if old := c.previous.policies[p.Name()]; old != nil && old.Same(p) {
			p = old
		}
	}
	c.rules.policies[p.Name()] = p
	return p
}
