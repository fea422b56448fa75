package respapi

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/resp"
	"github.com/weirlimit/weir/internal/storeapi"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
)

// throttleName is the name of the policy under which decisions of CL.THROTTLE are reported.
const throttleName = "cl.throttle"

// throttleSeen is that policy.
var throttleSeen = weir.Must(call.Observed(throttleName)) // the name is valid

// throttle answers CL.THROTTLE.
func (c *conn) throttle(args [][]byte) {
	n, quantity, err := throttleArgs(args)
	var policy *weir.Policy
	if err == nil {
		policy, err = c.srv.throttler.policy(c.caller().Name(), n)
	}
	if err == nil {
		err = storeapi.CheckKey(textOf(args[1]))
	}
	if err != nil {
		c.fail("ERR " + strings.TrimPrefix(err.Error(), "weir: "))
		return
	}
	charge := weir.Charge{Policy: policy, Key: textOf(args[1]), Cost: quantity}
	if quantity == 0 || quantity > n.burst {
		c.look(charge, n.burst)
		return
	}
	c.enqueueThrottle(charge, n.burst)
	if !c.in.Partial() {
		c.decideBatch()
	}
}

// throttleArgs parses the arguments.
func throttleArgs(args [][]byte) (n params, quantity int64, err error) {
	if len(args) != 5 && len(args) != 6 {
		//lint:ignore ST1005 the text is that of redis-cell
		return n, 0, errors.New("Usage: CL.THROTTLE <key> <max_burst> <count> <period> [<quantity>]")
	}
	numbers := [4]int64{3: 1}
	for i, arg := range args[2:] {
		var ok bool
		if numbers[i], ok = parseInt(arg); !ok {
			//lint:ignore ST1005 the text is that of redis-cell
			return n, 0, fmt.Errorf("Couldn't parse as integer: %s", clip(arg))
		}
	}
	n, quantity = params{numbers[0] + 1, numbers[1], numbers[2]}, numbers[3]
	switch {
	case numbers[0] < 0 || quantity < 0:
		return n, 0, errors.New("max_burst and quantity must not be negative")
	case n.burst < 0: // it overflowed
		return n, 0, errors.New("max_burst is too great")
	case quantity > weir.MaxCost && quantity <= n.burst:
		return n, 0, fmt.Errorf("quantity %s: one call takes at most %d", clip(args[5]), weir.MaxCost)
	}
	return n, quantity, nil
}

// textOf returns an argument as a string in the memory of the command, for those who do not retain it.
func textOf(arg []byte) string { return unsafe.String(unsafe.SliceData(arg), len(arg)) }

// look answers a CL.THROTTLE that charges nothing.
func (c *conn) look(charge weir.Charge, limit int64) {
	c.decideBatch() // replies are in order
	d, err := c.srv.throttler.look(c.srv.ctx, charge.Policy, charge.Key, charge.Cost)
	if err != nil {
		c.failWith(c.srv.cfg.Core.Undecided(c.srv.ctx, throttleName, err))
		return
	}
	c.recordThrottled(&charge, &d, c.took())
	c.out = appendThrottled(c.out, limit, &d)
}

// throttleEach answers several CL.THROTTLE.
func (c *conn) throttleEach(b *batch) {
	errs := c.srv.throttler.take(c.srv.ctx, &b.throttled)
	c.observeThrottled(&b.throttled, errs)
	for i := range b.throttled.Charges {
		if err := errs[i]; err != nil {
			c.failWith(c.srv.cfg.Core.Undecided(c.srv.ctx, throttleName, err))
			continue
		}
		c.out = appendThrottled(c.out, b.limits[i], &b.throttled.Decisions[i])
	}
}

// appendThrottled appends the reply of redis-cell: limited, limit, remaining, retry_s, reset_s.
// The limit is that of the call; the decision's may be less while a shared store is unavailable.
func appendThrottled(b []byte, limit int64, d *weir.Decision) []byte {
	limited, retry := int64(0), int64(-1)
	if !d.Allowed {
		limited, retry = 1, roundUp(d.RetryAfter, time.Second)
	}
	b = resp.AppendInt(resp.AppendArray(b, 5), limited)
	b = resp.AppendInt(resp.AppendInt(b, limit), d.Remaining)
	return resp.AppendInt(resp.AppendInt(b, retry), roundUp(d.ResetAfter, time.Second))
}

// observeThrottled records the decisions. Admitted ones are only counted, unless an observer needs
// each.
func (c *conn) observeThrottled(b *weir.Batch, errs map[int]error) {
	first := 0
	if took := c.tookEach(len(b.Charges)); took != ruleset.Untimed && errs[0] == nil {
		c.recordThrottled(&b.Charges[0], &b.Decisions[0], took)
		first = 1
	}
	admitted := 0
	for i := first; i < len(b.Charges); i++ {
		if errs[i] == nil && isAdmitted(&b.Decisions[i]) {
			admitted++
		}
	}
	each := admitted > 0 && !c.srv.cfg.ObserveAdmitted(throttleSeen, admitted)
	if admitted == len(b.Charges)-first && !each {
		return
	}
	for i := first; i < len(b.Charges); i++ {
		if errs[i] == nil && (each || !isAdmitted(&b.Decisions[i])) {
			c.recordThrottled(&b.Charges[i], &b.Decisions[i], ruleset.Untimed)
		}
	}
}

// isAdmitted reports whether a decision is only counted: admitted, and not by this node alone.
func isAdmitted(d *weir.Decision) bool { return d.Allowed && d.Reason == weir.Admitted && !d.Estimate }

// recordThrottled records a decision.
func (c *conn) recordThrottled(charge *weir.Charge, d *weir.Decision, took time.Duration) {
	v := ruleset.Verdict{Decision: *d, Variant: throttleSeen, Limit: -1, Shadow: -1}
	q := ruleset.Query{Key: charge.Key, Cost: charge.Cost, Client: c.caller().Name()}
	c.srv.cfg.Core.Record(&q, &v, charge.Cost == 0, took)
}

// A throttler makes the decisions of CL.THROTTLE, on the limiter that decides everything else: each
// client has a policy of its own, with a name that no configuration can have, and a call with other
// parameters uses another policy of the same name, on the same state. A limiter in memory bounds how
// many different parameters a client can use at once.
//
// Policies are cached, directly mapped: parameters with the same slot replace each other. A caller
// that sends random parameters makes others compile some policies, and uses no more memory.
type throttler struct {
	limiter weir.Limiter // set by newThrottler, like the next
	seed    maphash.Seed
	slots   [throttlePolicies]atomic.Pointer[throttlePolicy]
}

// throttlePolicies is the number of cached policies.
const throttlePolicies = 4096

// throttlePolicy is the policy of a client's parameters. It is immutable.
type throttlePolicy struct {
	clientParams
	policy *weir.Policy
}

type clientParams struct {
	client string
	params
}

// params are the limit parameters of a call: count units per period seconds, and a burst of
// max_burst + 1 units.
type params struct{ burst, count, period int64 }

func newThrottler(l weir.Limiter) *throttler { return &throttler{limiter: l, seed: maphash.MakeSeed()} }

// maxPeriod is the longest period in seconds.
const maxPeriod = algo.MaxPer / int64(time.Second)

// policy returns the policy of a client's parameters. Its error names the arguments of CL.THROTTLE.
func (t *throttler) policy(client string, n params) (*weir.Policy, error) {
	want := clientParams{client, n}
	place := &t.slots[maphash.Comparable(t.seed, want)%throttlePolicies]
	if known := place.Load(); known != nil && known.clientParams == want {
		return known.policy, nil
	}
	if n.period < 1 || n.period > maxPeriod {
		return nil, fmt.Errorf("period must be between 1 and %d seconds", maxPeriod)
	}
	if n.count < 1 || n.count > algo.MaxRate {
		return nil, fmt.Errorf("count must be between 1 and %d", int64(algo.MaxRate))
	}
	per := weir.Every(time.Duration(n.period) * time.Second)
	p, err := weir.NewPolicy(":cl.throttle:"+client, weir.Limit{Rate: n.count, Per: per, Burst: n.burst, Algorithm: weir.GCRA})
	if bad, ok := errors.AsType[*weir.LimitError](err); ok {
		name := map[string]string{"rate": "count", "burst": "max_burst + 1"}[bad.Field]
		return nil, fmt.Errorf("%s %s", name, bad.Problem)
	}
	if err != nil {
		return nil, err
	}
	place.Store(&throttlePolicy{want, p})
	return p, nil
}

// take decides several charges on their own, with one call to the limiter. If a key has more units
// in use than its parameters can represent, nothing was charged, and it decides one after the other.
//
// It returns the errors of those that could not be decided, by their index.
func (t *throttler) take(ctx context.Context, b *weir.Batch) (errs map[int]error) {
	var whole error // of all charges
	if len(b.Charges) > 1 {
		if whole = t.limiter.Do(ctx, b); whole == nil {
			return nil
		}
	}
	b.Decisions = append(b.Decisions[:0], make([]weir.Decision, len(b.Charges))...)
	for i, c := range b.Charges {
		err := whole
		if err == nil || errors.Is(err, compiled.ErrLimits) {
			b.Decisions[i], err = t.limiter.Take(ctx, c.Policy, c.Key, c.Cost)
		}
		if err != nil {
			if errs == nil {
				errs = map[int]error{}
			}
			errs[i] = err
		}
	}
	return errs
}

// look decides a quantity that charges nothing: 0, or one that is always refused.
func (t *throttler) look(ctx context.Context, p *weir.Policy, key string, quantity int64) (weir.Decision, error) {
	d, err := weir.Peek(ctx, t.limiter, p, key, 0)
	if err == nil && quantity > 0 {
		d.Allowed, d.Reason, d.RetryAfter = false, weir.TooCostly, weir.Never
	}
	return d, err
}
