package envoyapi

import (
	"fmt"
	"sync"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/weirlimit/weir"
)

// overrides are the limits that came with requests, so that each is compiled once. There
// are at most maxOverrides: whoever can invent numbers must not fill the memory with them.
type overrides struct {
	mu   sync.Mutex // guards the field below
	list map[overrideKey]*weir.Policy
}

type overrideKey struct {
	name     string // of the policy
	period   period
	requests uint32
	compat   bool
}

const maxOverrides = 1024

// limit returns the limit that a request brings for a descriptor that leads to n, which may
// be nil. It is counted where the configured one is, if that has the same period. It has no
// mode of its own, as in envoyproxy/ratelimit.
func (o *overrides) limit(d *domain, n *node, brought *rlcommon.RateLimitDescriptor_RateLimitOverride) (*limit, error) {
	l := &limit{
		Limit:  Limit{Unit: Unit(brought.GetUnit()), RequestsPerUnit: brought.GetRequestsPerUnit()},
		period: period{Unit(brought.GetUnit()), 1},
	}
	if times := brought.GetUnitMultiplier(); times != nil {
		l.times = times.GetValue()
	}
	numbers, err := numbersOf(l.RequestsPerUnit, l.period, d.Compat)
	if err != nil {
		return nil, fmt.Errorf("limit: %w", err)
	}
	if numbers == nil {
		return l, nil
	}
	name := ""
	if n != nil && n.limit != nil && n.limit.policy != nil && n.limit.period == l.period {
		name = n.limit.policy.Name()
	} else {
		name, l.apart = policyName([]string{d.Name, "override", l.period.unit.String()}), l.times
	}
	l.policy, err = o.policy(overrideKey{name, l.period, l.RequestsPerUnit, d.Compat}, *numbers)
	return l, err
}

func (o *overrides) policy(k overrideKey, numbers weir.Limit) (*weir.Policy, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := o.list[k]; p != nil {
		return p, nil
	}
	p, err := weir.NewPolicy(k.name, numbers)
	if err != nil {
		return nil, fmt.Errorf("limit: %w", err)
	}
	if o.list == nil || len(o.list) >= maxOverrides {
		o.list = map[overrideKey]*weir.Policy{}
	}
	o.list[k] = p
	return p, nil
}
