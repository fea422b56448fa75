package fleettest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
	"github.com/weirlimit/weir/tiered"
)

// direct is a node that asks the store for everything, so it keeps every promise. Where a
// limit fails local, it has no share and refuses.
type direct struct {
	c tiered.Config

	mu    sync.Mutex // guards the field below
	stats tiered.Stats
}

func newDirect(c tiered.Config) Node { return &direct{c: c} }

func (d *direct) Close() {}

func (d *direct) Stats() tiered.Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stats
}

func (d *direct) count(add func(*tiered.Stats)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	add(&d.stats)
}

// within returns the context of a call to the store.
func (d *direct) within(ctx context.Context) (context.Context, context.CancelFunc) {
	most := d.c.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		most = min(most, max(left-answerTime, left/2))
	}
	return context.WithTimeout(ctx, most)
}

// unavailable decides while the store is unavailable.
func (d *direct) unavailable(p *weir.Policy) weir.Decision {
	d.count(func(s *tiered.Stats) { s.Fallback++ })
	if d.c.OnError == weir.FailOpen {
		return weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: p.Capacity(), Remaining: p.Capacity()}
	}
	return weir.Decision{Reason: weir.StoreDown, RetryAfter: probeEvery}
}

func (d *direct) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	within, cancel := d.within(ctx)
	defer cancel()
	decision, err := d.c.Store.Take(within, p, key, cost)
	if err != nil {
		return d.unavailable(p), nil
	}
	d.count(func(s *tiered.Stats) { s.Store++ })
	return decision, nil
}

func (d *direct) Do(ctx context.Context, b *weir.Batch) error {
	_ = d.do(ctx, b) // it was decided without the store
	return nil
}

// do is Do, and returns why the store was unavailable.
func (d *direct) do(ctx context.Context, b *weir.Batch) error {
	within, cancel := d.within(ctx)
	defer cancel()
	check(storeapi.CheckBatch(b))
	err := d.c.Store.Do(within, b)
	for i, c := range b.Charges {
		switch {
		case b.Op == weir.ResetEach:
		case err == nil:
			d.count(func(s *tiered.Stats) { s.Store++ })
		case b.Op == weir.DebitEach:
			b.Decisions[i].Allowed = true
			if !errors.Is(err, weir.ErrUnknown) {
				d.count(func(s *tiered.Stats) { s.Forgiven += c.Cost })
			}
		default:
			b.Decisions[i] = d.unavailable(c.Policy)
		}
	}
	return err
}

func (d *direct) Set(ctx context.Context, old, new *weir.Policy) error {
	return d.c.Store.Set(ctx, old, new)
}

// admitting is a node that admits everything.
type admitting struct{ *direct }

func newAdmitting(c tiered.Config) Node { return admitting{&direct{c: c}} }

func (a admitting) Take(_ context.Context, p *weir.Policy, _ string, cost int64) (weir.Decision, error) {
	a.count(func(s *tiered.Stats) { s.Async++ })
	return weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: p.Capacity(), Remaining: p.Capacity() - cost}, nil
}

// An allowing is the smallest node that keeps the promises of Async: one allowance for each
// key, one call in flight for it, and nothing clever. It falls back as direct does.
type allowing struct {
	direct
	fault string // which of its promises it breaks, if any

	cancel context.CancelFunc
	wg     sync.WaitGroup

	km     sync.Mutex // guards the fields below
	keys   map[string]*allowed
	closed bool
}

// allowed is a key of an allowing: left + spent + inFlight ≤ b.
type allowed struct {
	policy   *weir.Policy
	left     int64 // of the allowance
	spent    int64 // and not sent
	inFlight int64 // sent, and not answered
	busy     bool  // a flight is under way
	due      bool  // a flush is due when it is over
	waiting  []*waiting
	sent     int // counts calls to the store: an answer counts if no later one was sent
}

type waiting struct {
	cost     int64
	decision chan weir.Decision // receives nothing if the store is unavailable
}

func newAllowing(fault string) func(tiered.Config) Node {
	return func(c tiered.Config) Node {
		ctx, cancel := context.WithCancel(context.Background())
		a := &allowing{direct: direct{c: c}, fault: fault, cancel: cancel, keys: map[string]*allowed{}}
		a.wg.Go(func() { a.flushEvery(ctx) })
		return a
	}
}

// most is b.
func (a *allowing) most(p *weir.Policy) int64 {
	nodes := a.c.Nodes
	if a.c.Bus != nil {
		nodes = a.c.Bus.Nodes()
	}
	b := a.c.MaxUnsynced
	if b == 0 {
		b = max(1, p.Capacity()/(10*int64(nodes)))
	}
	if a.fault == "cap" {
		b *= 4
	}
	return b
}

func (a *allowing) flushEvery(ctx context.Context) {
	tick := time.NewTicker(a.c.FlushEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		a.km.Lock()
		for key, k := range a.keys {
			if k.spent > 0 && a.fault != "flush" {
				a.flyLocked(key, k)
			}
		}
		a.km.Unlock()
	}
}

func (a *allowing) Close() {
	a.km.Lock()
	for key, k := range a.keys {
		k.left = 0
		if k.spent > 0 && !a.closed {
			a.flyLocked(key, k)
		}
	}
	a.closed = true
	a.km.Unlock()
	a.cancel()
	a.wg.Wait()
}

func (a *allowing) Stats() tiered.Stats {
	s := a.direct.Stats()
	a.km.Lock()
	defer a.km.Unlock()
	for _, k := range a.keys {
		s.Unsynced += k.spent
	}
	return s
}

func (a *allowing) keyLocked(p *weir.Policy, key string) *allowed {
	k := a.keys[key]
	if k == nil {
		k = &allowed{}
		a.keys[key] = k
	}
	k.policy = p
	return k
}

// spendLocked takes a charge from the allowance, if that suffices.
func (a *allowing) spendLocked(k *allowed, cost int64) (d weir.Decision, ok bool) {
	if cost > k.left {
		return d, false
	}
	k.left -= cost
	k.spent += cost
	return weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: k.policy.Capacity(), Remaining: k.left, Estimate: true}, true
}

func (a *allowing) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	a.km.Lock()
	k := a.keyLocked(p, key)
	if d, ok := a.spendLocked(k, cost); ok && cost > 0 {
		a.km.Unlock()
		a.count(func(s *tiered.Stats) { s.Async++ })
		return d, nil
	}
	w := &waiting{cost: cost, decision: make(chan weir.Decision, 1)}
	k.waiting = append(k.waiting, w)
	a.flyLocked(key, k)
	a.km.Unlock()
	within, cancel := a.within(ctx)
	defer cancel()
	select {
	case d, ok := <-w.decision:
		if ok {
			a.count(func(s *tiered.Stats) { s.Store++ })
			return d, nil
		}
	case <-within.Done():
	}
	a.km.Lock()
	k.waiting = slices.DeleteFunc(k.waiting, func(o *waiting) bool { return o == w })
	a.km.Unlock()
	return a.unavailable(p), nil
}

// flyLocked starts a flight for a key, or has one follow the one under way.
func (a *allowing) flyLocked(key string, k *allowed) {
	if k.busy {
		k.due = true
		return
	}
	k.busy = true
	fly := func() {
		for a.flight(key, k) {
		}
	}
	if a.closed {
		go fly()
		return
	}
	a.wg.Go(fly)
}

// flight sends what was spent and the charges of all who wait, and returns whether there is more.
func (a *allowing) flight(key string, k *allowed) bool {
	a.km.Lock()
	p, list := k.policy, k.waiting
	b := weir.Batch{Op: weir.TakeEach}
	for _, w := range list {
		b.Charges = append(b.Charges, weir.Charge{Policy: p, Key: key, Cost: w.cost})
	}
	b.Charges = append(b.Charges, weir.Charge{Policy: p, Key: key}) // how much remains of all limits
	b.Used = make([]int64, len(b.Charges))
	b.Used[0] = k.spent
	used := k.spent
	k.inFlight, k.spent, k.waiting, k.due = k.inFlight+used, 0, nil, false
	if a.fault == "in flight" {
		k.left = max(k.left, a.most(p))
	}
	k.sent++
	sent := k.sent
	a.km.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	err := a.c.Store.Do(ctx, &b)

	a.km.Lock()
	defer a.km.Unlock()
	k.inFlight -= used
	if err != nil && !errors.Is(err, weir.ErrUnknown) || a.fault == "repeats" && err != nil {
		k.spent += used // it was not charged
	}
	k.left = 0
	if err == nil && sent == k.sent && !a.closed {
		last := b.Decisions[len(b.Decisions)-1]
		k.left = max(0, min(a.most(p), last.Remaining)-k.spent-k.inFlight)
	}
	for i, w := range list {
		if err != nil {
			close(w.decision)
			continue
		}
		w.decision <- b.Decisions[i]
	}
	k.waiting = slices.DeleteFunc(k.waiting, func(w *waiting) bool {
		d, ok := a.spendLocked(k, w.cost)
		if ok {
			w.decision <- d
		}
		return ok
	})
	k.busy = len(k.waiting) > 0 || k.due && k.spent > 0 && err == nil
	return k.busy
}

func (a *allowing) Do(ctx context.Context, b *weir.Batch) error {
	check(storeapi.CheckBatch(b))
	if b.Op == weir.TakeEach {
		var wg sync.WaitGroup
		for i, c := range b.Charges {
			wg.Go(func() { b.Decisions[i], _ = a.Take(ctx, c.Policy, c.Key, c.Cost) }) // it returns none
		}
		wg.Wait()
		return nil
	}
	if b.Op == weir.PeekEach {
		return a.direct.Do(ctx, b)
	}
	return a.doWithUsed(ctx, b)
}

// doWithUsed has the store do what no allowance can, after it was charged for the unsynced usage.
func (a *allowing) doWithUsed(ctx context.Context, b *weir.Batch) error {
	a.km.Lock()
	used := map[*allowed]int64{}
	for i, c := range b.Charges {
		k := a.keyLocked(c.Policy, c.Key)
		k.left = 0
		k.sent++
		if b.Op == weir.ResetEach {
			k.spent = 0
		}
		if b.Op == weir.TakeAll && k.spent > 0 {
			if b.Used == nil {
				b.Used = make([]int64, len(b.Charges))
			}
			b.Used[i], used[k] = k.spent, k.spent
			k.inFlight, k.spent = k.inFlight+k.spent, 0
		}
	}
	a.km.Unlock()
	err := a.do(ctx, b)
	b.Used = nil
	a.km.Lock()
	defer a.km.Unlock()
	for k, units := range used {
		k.inFlight -= units
		if err != nil && !errors.Is(err, weir.ErrUnknown) {
			k.spent += units
		}
	}
	return nil
}

func (a *allowing) Set(ctx context.Context, old, new *weir.Policy) error {
	a.km.Lock()
	for _, k := range a.keys {
		k.left = 0
		k.sent++
	}
	a.km.Unlock()
	return a.direct.Set(ctx, old, new)
}
