package tiered

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
)

const (
	// mostWords bounds the denials that the other nodes are to be told. Beyond it they find
	// out themselves.
	mostWords = 1024

	// gather is how long denials wait for others to go with.
	gather = 2 * time.Millisecond

	publishTimeout = 100 * time.Millisecond
)

// tell has the other nodes told of a denial that is true until then.
func (t *Limiter) tell(e *entry, n *denial, until weir.Instant) {
	w := Word{
		Kind: Denied, Policy: e.family.name, Key: e.key, Limits: n.limits, Cost: n.cost, Until: until,
		By: n.by, Limit: n.limit, Remaining: n.remaining, ResetAt: n.resetAt,
	}
	select {
	case t.words <- w:
	default:
		t.counts.unpublished.Add(1)
	}
}

// publish tells the other nodes, some denials at a time.
func (t *Limiter) publish() {
	for {
		select {
		case <-t.ctx.Done():
			return
		case w := <-t.words:
			list := []Word{w}
			t.sleep(gather)
			for len(t.words) > 0 && len(list) < mostWords {
				list = append(list, <-t.words)
			}
			t.announce(t.ctx, list...)
		}
	}
}

// announce tells the other nodes now.
func (t *Limiter) announce(ctx context.Context, list ...Word) {
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

// heard takes in what other nodes tell. If something may have been lost, no denial is
// believed any more.
func (t *Limiter) heard(list []Word) {
	if list == nil {
		t.families.Range(func(_, f any) bool {
			t.policyChanged(f.(*family))
			return true
		})
		return
	}
	defer t.counts.heard.Add(int64(len(list))) // who sees the count can rely on the words
	for _, w := range list {
		known, ok := t.families.Load(w.Policy)
		if !ok {
			continue // nobody asks for it here
		}
		f := known.(*family)
		switch w.Kind {
		case Denied:
			t.heardDenied(f, w)
		case WasReset:
			if e := t.changed(f, w.Key); e != nil {
				e.voidAllowance()
			}
		case WasSet:
			t.store.changed(w.Policy)
			t.policyChanged(f)
		}
	}
}

func (t *Limiter) heardDenied(f *family, w Word) {
	now := t.now()
	until := min(w.Until, now.Add(t.config.MaxDeny))
	if until <= now || w.Cost < 1 {
		return
	}
	e := t.table.add(f, w.Key, t.table.hash(f, w.Key))
	if e == nil {
		return
	}
	if n := e.denial.Load(); n != nil && n.epoch == f.epoch.Load() && n.limits == w.Limits && n.cost <= w.Cost && n.until >= until {
		return // it is known better
	}
	e.denial.Store(&denial{
		keyState: keyState{limits: w.Limits, by: w.By, remaining: w.Remaining, limit: w.Limit, resetAt: max(w.ResetAt, w.Until), at: now},
		epoch:    f.epoch.Load(), cost: w.Cost, until: until, retryAt: w.Until, reason: weir.Exhausted,
	})
}

// policyChanged is for a policy whose limits another node has, or may have, changed. What
// is cached under the old ones is void at once. The new ones are the store's to know: it
// is asked for them now, because this node needs them when the store becomes unavailable.
func (t *Limiter) policyChanged(f *family) {
	f.epoch.Add(1)
	t.background(func() {
		ctx, cancel := context.WithTimeout(t.ctx, patience)
		defer cancel()
		if f.follow(func(p *weir.Policy) *weir.Policy { return t.store.current(ctx, p) }) {
			f.epoch.Add(1)
		}
	})
}
