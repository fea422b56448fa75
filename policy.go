package weir

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/compiled"
)

// Policy is one or more limits that share a key and a cost and are charged
// together, all or none. It is compiled once and immutable; its identity is its
// name, and a limit's is the pair of names, so limits of different policies
// never share a counter. Make one with NewPolicy.
type Policy struct {
	name     string
	limits   []Limit // with defaults filled in
	compiled compiled.Policy
	classes  []*Policy // one for each class, nil if there are none
}

// NewPolicy compiles limits. Its error joins a *LimitError for every limit that
// has a problem.
func NewPolicy(name string, limits ...Limit) (*Policy, error) {
	if !checkName(name) {
		return nil, &LimitError{Policy: name, Field: "name", Value: fmt.Sprintf("%q", name), Problem: nameProblem}
	}
	return compile(name, limits)
}

var serials atomic.Uint64

const nameProblem = "must be 1 to 128 letters, digits or -_.:/"

func compile(name string, limits []Limit) (*Policy, error) {
	p := &Policy{name: name, limits: make([]Limit, len(limits))}
	p.compiled = compiled.Policy{
		Serial: serials.Add(1), Names: make([]string, len(limits)), Rules: make([]algo.Rule, len(limits)), Fills: make([]algo.Fill, len(limits)),
	}
	var problems []error
	if len(limits) < 1 || len(limits) > algo.MaxRules {
		problems = append(problems, &LimitError{Policy: name, Field: "limits", Value: len(limits), Problem: fmt.Sprintf("a policy has 1 to %d", algo.MaxRules)})
	}
	for i, l := range limits {
		p.limits[i] = l.normal()
	}
	for i := range limits {
		if err := p.compileLimit(i); err != nil {
			problems = append(problems, limitError(name, p.limits[i].Name, err))
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	p.compiled.Word, p.compiled.SlotsOnly = algo.NewWord(p.compiled.Rules), p.slotsOnly()
	p.compileClasses()
	return p, nil
}

// compileLimit makes rule i and checks it against the limits before it.
func (p *Policy) compileLimit(i int) error {
	l := p.limits[i]
	if !checkName(l.Name) {
		return badField("name", fmt.Sprintf("%q", l.Name), nameProblem)
	}
	for _, o := range p.limits[:i] {
		if o.Name == l.Name {
			return badField("name", fmt.Sprintf("%q", l.Name), "is taken by another limit of the policy; name them apart")
		}
		if o.Algorithm == DualWindow && l.Algorithm == DualWindow && o.Per == l.Per {
			return badField("per", l.Per, "the policy has a dual window of that length already")
		}
		if o.Algorithm == Lending && l.Algorithm == Lending {
			return badField("classes", l.Name, "another limit of the policy has classes already; give them to the one with the shortest period")
		}
	}
	if err := p.checkPace(i); err != nil {
		return err
	}
	var err error
	c := &p.compiled
	c.Names[i] = l.Name
	if c.Fills[i], err = l.Initial.millionths(); err != nil {
		return err
	}
	c.Rules[i], err = l.compile(c.Fills[i])
	return err
}

// Name returns the policy's name.
func (p *Policy) Name() string { return p.name }

// Limits returns the policy's limits with defaults filled in, in the order in
// which Decision.By counts them.
func (p *Policy) Limits() []Limit { return slices.Clone(p.limits) }

// Compiled is for the limiters of this module: its type is internal.
func (p *Policy) Compiled() *compiled.Policy { return &p.compiled }

// LimitName returns the name that headers give to limit i: the policy's for the
// limit called "main", otherwise "policy.limit".
func (p *Policy) LimitName(i int) string {
	if p.limits[i].Name == "main" {
		return p.name
	}
	return p.name + "." + p.limits[i].Name
}

// With returns a policy with other limits but the same identity, so that it
// acts on the same state: for overrides, grace periods and limits that come with
// a call. Units in use are kept, limit by limit of the same name. Keep to the
// period and algorithm of the original: a call under a shorter window records the usage
// in that window, and the usage is lost when the window ends.
func (p *Policy) With(limits ...Limit) (*Policy, error) { return p.sameClass(compile(p.name, limits)) }

// Scale returns the policy at num/den of its rates, on the same state. Bursts
// stay as they are; windows and slots scale their units, to no less than one.
func (p *Policy) Scale(num, den int64) (*Policy, error) {
	if num < 1 || den < 1 || num > MaxCost || den > MaxCost {
		return nil, fmt.Errorf("weir: policy %q: scale %d/%d: both must be between 1 and %d", p.name, num, den, MaxCost)
	}
	limits := slices.Clone(p.limits)
	for i, l := range limits {
		scaled, ok := l.scale(num, den)
		if !ok {
			return nil, limitError(p.name, l.Name, badField("rate", l.Rate, fmt.Sprintf("cannot be represented at %d/%d of it", num, den)))
		}
		limits[i] = scaled
	}
	return p.sameClass(compile(p.name, limits))
}

// mulDiv returns ⌊a × b / c⌋, at most MaxRate.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return algo.MaxRate
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, uint64(algo.MaxRate)))
}

// Same says whether two policies have the same name and limits, so that what was
// counted under one was counted under the other. OnError plays no part: it is for
// when nothing can be counted.
func (p *Policy) Same(o *Policy) bool {
	return p == o || p.name == o.name && p.compiled.Override == o.compiled.Override && slices.EqualFunc(p.limits, o.limits, func(a, b Limit) bool {
		a.OnError = b.OnError
		return a == b
	})
}

// Capacity returns the greatest cost that the policy can ever admit, for charges of its class if
// it has classes.
func (p *Policy) Capacity() int64 {
	least := p.compiled.Capacity(0)
	for i := range p.limits[1:] {
		least = min(least, p.compiled.Capacity(1+i))
	}
	return least
}

// ReserveOnly says whether the policy limits concurrency, so that only Reserve
// can serve it.
func (p *Policy) ReserveOnly() bool {
	return slices.ContainsFunc(p.limits, func(l Limit) bool { return l.Algorithm == Concurrency })
}

// slotsOnly says whether all limits are of concurrency.
func (p *Policy) slotsOnly() bool {
	return !slices.ContainsFunc(p.limits, func(l Limit) bool { return l.Algorithm != Concurrency })
}
