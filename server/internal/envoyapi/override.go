package envoyapi

import (
	"fmt"
	"sync"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
)

// overrides caches the policies of limit overrides in requests. It has at most maxOverrides, so
// that callers cannot fill the memory.
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

// limit returns the limit override of a descriptor that matches n, which may be nil. It uses the
// counter of the configured limit if that has the same period. It has no mode, as in
// envoyproxy/ratelimit.
func (o *overrides) limit(d *domain, n *node, brought *rlcommon.RateLimitDescriptor_RateLimitOverride) (*limit, error) {
	l := &limit{
		Limit:  Limit{Unit: Unit(brought.GetUnit()), RequestsPerUnit: brought.GetRequestsPerUnit()},
		period: period{Unit(brought.GetUnit()), 1},
	}
	if times := brought.GetUnitMultiplier(); times != nil {
		l.times = times.GetValue()
	}
	converted, err := limiterLimit(l.RequestsPerUnit, l.period, d.Compat)
	if err != nil {
		return nil, fmt.Errorf("limit: %w", err)
	}
	if converted == nil {
		return l, nil
	}
	name := ""
	if n != nil && n.limit != nil && n.limit.policy != nil && n.limit.period == l.period {
		name = n.limit.policy.Name()
	} else {
		name, l.apart = policyName([]string{d.Name, "override", l.period.unit.String()}), l.times
	}
	l.policy, err = o.policy(overrideKey{name, l.period, l.RequestsPerUnit, d.Compat}, *converted)
	return l, err
}

func (o *overrides) policy(k overrideKey, converted weir.Limit) (*weir.Policy, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := o.list[k]; p != nil {
		return p, nil
	}
	p, err := weir.NewPolicy(k.name, converted)
	if err == nil {
		p, err = storeapi.Override(p, converted) // it may have limits that the configured one had before
	}
	if err != nil {
		return nil, fmt.Errorf("limit: %w", err)
	}
	if o.list == nil || len(o.list) >= maxOverrides {
		o.list = map[overrideKey]*weir.Policy{}
	}
	o.list[k] = p
	return p, nil
}
