package tiered

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
)

const (
	// maxQueuedDenials bounds the denials that wait to be published. Others are dropped:
	// the other nodes learn of them from the store.
	maxQueuedDenials = 1024

	// gather is how long a denial waits for others, to be published with them.
	gather = 2 * time.Millisecond

	publishTimeout = 100 * time.Millisecond
)

// queueDenial has a denial published that is valid until the given instant.
func (t *Limiter) queueDenial(e *entry, n *denial, until weir.Instant) {
	m := Message{
		Kind: KeyDenied, Policy: e.history.name, Key: e.key, Limits: n.limits, Cost: n.cost, Until: until,
		By: n.by, Limit: n.limit, Remaining: n.remaining, ResetAt: n.resetAt,
	}
	select {
	case t.denials <- queuedDenial{e, n, m}:
	default:
		t.counts.unpublished.Add(1)
	}
}

// A queuedDenial waits to be published. It is not if it is no longer cached by then: after a
// reset of the key, nodes that have applied the reset already would cache it again.
type queuedDenial struct {
	entry   *entry
	denial  *denial
	message Message
}

// publish publishes queued denials in batches.
func (t *Limiter) publish() {
	for {
		select {
		case <-t.ctx.Done():
			return
		case q := <-t.denials:
			t.sleep(gather)
			var list []Message
			for more := true; more; {
				if q.entry.denial.Load() == q.denial {
					list = append(list, q.message)
				}
				if more = len(t.denials) > 0 && len(list) < maxQueuedDenials; more {
					q = <-t.denials
				}
			}
			t.publishNow(t.ctx, list...)
		}
	}
}

// publishNow publishes messages without queueing them.
func (t *Limiter) publishNow(ctx context.Context, list ...Message) {
	if t.config.Bus == nil || len(list) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	defer cancel()
	if err := t.config.Bus.Publish(ctx, list); err != nil {
		t.counts.unpublished.Add(int64(len(list)))
		return
	}
	t.counts.published.Add(int64(len(list)))
}

// receive applies messages of other nodes. If messages may have been lost (nil), everything
// that is cached is dropped.
func (t *Limiter) receive(list []Message) {
	if list == nil {
		t.histories.Range(func(_, h any) bool {
			t.policyChanged(h.(*policyHistory))
			return true
		})
		return
	}
	defer t.counts.received.Add(int64(len(list))) // deferred, so that the messages it counts have been applied
	for _, m := range list {
		known, ok := t.histories.Load(m.Policy)
		if !ok {
			continue // the policy is not used on this node
		}
		h := known.(*policyHistory)
		switch m.Kind {
		case KeyDenied:
			t.receiveDenial(h, m)
		case KeyReset:
			if e := t.changed(h, m.Key); e != nil {
				e.voidAllowance()
			}
		case PolicyChanged:
			t.store.changed(m.Policy)
			t.policyChanged(h)
		}
	}
}

func (t *Limiter) receiveDenial(h *policyHistory, m Message) {
	now := t.now()
	until := min(m.Until, now.Add(t.config.MaxDeny))
	if until <= now || m.Cost < 1 {
		return
	}
	e := t.table.add(h, m.Key, t.table.hash(h, m.Key))
	if e == nil {
		return
	}
	if n := e.denial.Load(); n != nil && n.epoch == h.epoch.Load() && n.limits == m.Limits && n.cost <= m.Cost && n.until >= until {
		return // the cached denial covers this one
	}
	e.denial.Store(&denial{
		keyState: keyState{limits: m.Limits, by: m.By, remaining: m.Remaining, limit: m.Limit, resetAt: max(m.ResetAt, m.Until), at: now},
		epoch:    h.epoch.Load(), cost: m.Cost, until: until, retryAt: m.Until, reason: weir.Exhausted,
	})
}

// policyChanged handles that another node has, or may have, changed the limits of a policy.
// Everything cached under the old limits becomes void at once. The new limits are fetched
// from the store now, because this node needs them when the store becomes unavailable.
func (t *Limiter) policyChanged(h *policyHistory) {
	h.epoch.Add(1)
	t.background(func() {
		ctx, cancel := context.WithTimeout(t.ctx, patience)
		defer cancel()
		if h.refresh(func(p *weir.Policy) *weir.Policy { return t.store.current(ctx, p) }) {
			h.epoch.Add(1)
		}
	})
}
