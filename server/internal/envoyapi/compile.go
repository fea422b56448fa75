package envoyapi

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
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
	limit    *limit   // nil for none
	exact    map[entry]*node
	prefixes map[entry]*node  // by the value without its *
	lengths  map[string][]int // of a key's prefixes, the longest first
}

type entry struct{ key, value string }

// limit is a compiled Limit.
type limit struct {
	Limit
	period
	mode   mode
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

// Compile compiles domains. Its error joins all problems. Policies that did not change since
// previous, which may be nil, are reused from there.
func Compile(domains []Domain, previous *Rules) (*Rules, error) {
	c := &compiler{previous: previous, rules: &Rules{domains: map[string]*domain{}, policies: map[string]*weir.Policy{}}}
	for _, d := range domains {
		c.domain(d)
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

func (c *compiler) wrong(path []string, err error) {
	c.problems = append(c.problems, fmt.Errorf("envoy: %q: %w", strings.Join(path, " "), err))
}

func (c *compiler) domain(d Domain) {
	path := []string{d.Name}
	if d.Name == "" || c.rules.domains[d.Name] != nil {
		c.wrong(path, errors.New("a domain needs a name of its own"))
		return
	}
	c.current = &domain{Domain: d}
	seen, err := ruleset.Compile([]ruleset.Policy{{
		Name: Label(d.Name), Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 1, Per: weir.Every(time.Second)}}},
	}}, nil)
	if err != nil {
		c.wrong(path, err)
		return
	}
	c.current.observe = seen.All()[0].Base()
	c.current.root = c.node(path, d.Descriptors)
	c.rules.domains[d.Name] = c.current
}

func (c *compiler) node(path []string, list []Descriptor) *node {
	n := &node{path: path}
	for i := range list {
		c.child(n, &list[i])
	}
	return n
}

func (c *compiler) child(n *node, d *Descriptor) {
	path := append(slices.Clip(n.path), d.Key, d.Value)
	prefix, open := strings.CutSuffix(d.Value, "*")
	into, at := &n.exact, entry{d.Key, d.Value}
	if open {
		into, at = &n.prefixes, entry{d.Key, prefix}
	}
	if d.Key == "" || (*into)[at] != nil {
		c.wrong(path, errors.New("a descriptor needs a key, and a value that no other has"))
		return
	}
	child := c.node(path, d.Descriptors)
	child.limit = c.limit(path, d)
	if *into == nil {
		*into = map[entry]*node{}
	}
	(*into)[at] = child
	if open {
		n.addLength(d.Key, len(prefix))
	}
}

// addLength adds the length of a key's prefix.
func (n *node) addLength(key string, length int) {
	if n.lengths == nil {
		n.lengths = map[string][]int{}
	}
	if !slices.Contains(n.lengths[key], length) {
		list := append(n.lengths[key], length)
		slices.SortFunc(list, func(a, b int) int { return b - a })
		n.lengths[key] = list
	}
}

func (c *compiler) limit(path []string, d *Descriptor) *limit {
	if d.Limit == nil {
		return nil
	}
	l := &limit{Limit: *d.Limit, period: period{d.Limit.Unit, max(1, d.Limit.UnitMultiplier)}}
	switch {
	case d.ShadowMode:
		l.mode = shadow
	case d.QuotaMode:
		l.mode = quota
	}
	if l.Unlimited {
		return l
	}
	converted, err := limiterLimit(l.RequestsPerUnit, l.period, c.current.Compat)
	if err != nil {
		c.wrong(path, err)
		return l
	}
	if converted != nil {
		l.policy = c.policy(path, *converted)
	}
	return l
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
func (c *compiler) policy(path []string, converted weir.Limit) *weir.Policy {
	p, err := weir.NewPolicy(policyName(path), converted)
	if err != nil {
		c.wrong(path, err)
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
