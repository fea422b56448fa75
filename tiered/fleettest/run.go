package fleettest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/tiered"
)

// Source is what decided a call.
type Source uint8

// The sources.
const (
	ByStore  Source = iota // the store, for this call
	ByNode                 // the node, by a cached denial, a lease or an allowance
	ByShare                // the node, by its share of the limit while the store was unavailable
	ByNobody               // the call was admitted because the store was unavailable and the policy fails open
)

// String returns one letter.
func (s Source) String() string { return "SNLO"[s : s+1] }

// A Call is one Take, or one charge of a batch.
type Call struct {
	Node       int
	Op         weir.Op // TakeEach, TakeAll, PeekEach or DebitEach
	Of         int     // so many charges are in the batch
	Key        string
	Cost       int64
	Start, End time.Duration
	At         time.Duration // when it was decided: End, or when the store did
	From       time.Duration // At, unless it may have been decided earlier, as part of a batch
	By         Source
	Guessed    bool // By is a guess: the store decided a batch of several callers
	Decision   weir.Decision
	Err        error
}

func (c Call) String() string {
	return fmt.Sprintf("%12v %8v node %d op %d %s cost %d by %v: %v %v", c.Start, c.End-c.Start, c.Node, c.Op, c.Key, c.Cost, c.By, c.Decision, c.Err)
}

// grants says whether units were granted by the call.
func (c *Call) grants() bool {
	return c.takes() && c.Err == nil && c.Decision.Allowed && c.Cost > 0
}

func (c *Call) takes() bool { return c.Op == weir.TakeEach || c.Op == weir.TakeAll }

// A Grant is units of a key that a node admitted.
type Grant struct {
	At, From time.Duration // as of the Call
	Node     int
	Key      string
	Units    int64
	By       Source
}

// Result is what happened in a run.
type Result struct {
	Calls  []Call
	Ops    []Op           // all that reached the store, or was lost on the way
	Shares []Grant        // what nodes admitted on their shares
	Before []tiered.Stats // of each node before it was closed
	Stats  []tiered.Stats // and afterwards
	Policy *weir.Policy
}

// Grants returns what was admitted of a key, in order of time.
func (r Result) Grants(key string) (list []Grant) {
	for _, c := range r.Calls {
		if c.Key == key && c.grants() {
			list = append(list, Grant{c.At, c.From, c.Node, c.Key, c.Cost, c.By})
		}
	}
	slices.SortStableFunc(list, func(a, b Grant) int { return cmp.Compare(a.At, b.At) })
	return list
}

// fleet is the state of a run.
type fleet struct {
	scenario Scenario
	start    time.Time
	store    *model
	ports    []*busPort
	nodes    []Node
	policy   *weir.Policy

	mu     sync.Mutex // guards the fields below
	calls  []Call
	shares []Grant
}

func (f *fleet) now() time.Duration { return time.Since(f.start) }

// crashed reports whether a node has crashed.
func (f *fleet) crashed(node int) bool {
	return slices.ContainsFunc(f.scenario.Crashes, func(c Crash) bool { return c.Node == node && c.At <= f.now() })
}

// calm is how long a run continues after the last call, so that nodes detect that the store is
// available and flush their unsynced usage.
const calm = 1500 * time.Millisecond

// Run runs the scenario in virtual time.
func (s Scenario) Run(t *testing.T) (r Result) {
	synctest.Test(t, func(*testing.T) { r = s.withDefaults().run() })
	return r
}

func (s Scenario) run() (r Result) {
	f := &fleet{scenario: s, start: time.Now(), policy: must(weir.NewPolicy("fleet", s.Limits...))}
	f.store = newModel(f)
	for i := range s.Nodes {
		f.ports = append(f.ports, &busPort{f: f, node: i})
	}
	for i := range s.Nodes {
		time.Sleep(time.Duration(d(s.Seed, i)) + 1) // their tickers must not coincide
		f.nodes = append(f.nodes, f.newNode(i))
	}
	var wg sync.WaitGroup
	for i := range s.Nodes {
		wg.Go(func() { f.drive(i, &wg) })
	}
	f.schedule(&wg)
	if s.script != nil {
		wg.Go(func() { s.script(f) })
	}
	wg.Wait()
	time.Sleep(calm)
	r.Policy = f.policy
	for i, n := range f.nodes {
		r.Before = append(r.Before, n.Stats())
		n.Close()
		r.Stats = append(r.Stats, f.nodes[i].Stats())
	}
	time.Sleep(calm) // messages and calls in flight arrive
	f.finish(&r)
	return r
}

// d returns up to a millisecond in nanoseconds.
func d(seed uint64, node int) int {
	x := throw(seed, 2, uint64(node))
	return x.below(1_000_000)
}

func (f *fleet) newNode(i int) Node {
	s := &f.scenario
	clock := func() weir.Instant { return s.read(i, f.now()) }
	l := &link{f: f, node: i}
	c := tiered.Config{
		Store: l, Mode: s.Mode, OnError: s.OnError, Now: clock,
		Local:   &watched{Limiter: must(memstore.New(memstore.Config{MaxKeys: 1024, Now: clock})), f: f, node: i},
		Timeout: s.Timeout, MaxKeys: cmp.Or(s.MaxKeys, 64), MaxDeny: s.MaxDeny, LeaseTTL: s.LeaseTTL, FlushEvery: s.FlushEvery, MaxUnsynced: s.MaxUnsynced,
	}
	random := throw(s.Seed, 3, uint64(i))
	var mu sync.Mutex
	c.Random = func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return random.float()
	}
	if s.Timely {
		c.Store = timelyLink{l, s.Timeout}
	}
	if s.Store != nil {
		c.Store = s.Store(i, c.Store)
	}
	if s.Bus {
		c.Bus = f.ports[i]
	} else {
		c.Nodes = s.counted()
	}
	if s.Node != nil {
		return s.Node(c)
	}
	return must(tiered.New(c))
}

// watched is a node's Local. It records what shares admitted.
type watched struct {
	weir.Limiter
	f    *fleet
	node int
}

// Take implements weir.Limiter.
func (w *watched) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	d, err := w.Limiter.Take(ctx, p, key, cost)
	if err == nil && d.Allowed {
		w.admitted(weir.Charge{Policy: p, Key: key, Cost: cost})
	}
	return d, err
}

// Do implements weir.Limiter.
func (w *watched) Do(ctx context.Context, b *weir.Batch) error {
	err := w.Limiter.Do(ctx, b)
	if err != nil || b.Op != weir.TakeEach && b.Op != weir.TakeAll {
		return err
	}
	for i, d := range b.Decisions {
		if d.Allowed {
			w.admitted(b.Charges[i])
		}
	}
	return err
}

// admitted records a charge of a share.
func (w *watched) admitted(c weir.Charge) {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if c.Cost > 0 && !strings.HasPrefix(c.Policy.Name(), "copy:") {
		now := w.f.now()
		w.f.shares = append(w.f.shares, Grant{now, now, w.node, c.Key, c.Cost, ByShare})
	}
}

// drive makes the calls of a node.
func (f *fleet) drive(node int, wg *sync.WaitGroup) {
	random := rand.New(rand.NewPCG(f.scenario.Seed, uint64(node)))
	for _, p := range f.scenario.Demand[node] {
		time.Sleep(p.From - f.now())
		for {
			group := max(1, p.Together)
			gap := random.ExpFloat64() * float64(group) / p.PerSecond
			time.Sleep(time.Duration(min(gap, 1e3)*float64(time.Second)) + 1)
			if f.now() >= min(p.To, f.scenario.Length) {
				break
			}
			for range group {
				if f.crashed(node) {
					return
				}
				call := f.draw(node, random, max(1, p.Cost))
				wg.Go(call)
				time.Sleep(time.Duration(1 + random.IntN(2000)))
			}
		}
	}
}

// draw returns a call to make: a Take, a batch of charges of which no two are the same,
// or something else.
func (f *fleet) draw(node int, random *rand.Rand, most int64) func() {
	charge := func() weir.Charge {
		return weir.Charge{Policy: f.policy, Key: keyName(random.IntN(f.scenario.Keys)), Cost: 1 + random.Int64N(most)}
	}
	first := charge()
	if p := f.scenario.Others; p > 0 && random.Float64() < p {
		b := weir.Batch{Op: []weir.Op{weir.PeekEach, weir.PeekEach, weir.DebitEach}[random.IntN(3)], Charges: []weir.Charge{first}}
		return func() { f.batch(node, &b) }
	}
	if n := f.scenario.Batches; n > 0 && random.IntN(2) == 0 {
		b := weir.Batch{Op: []weir.Op{weir.TakeEach, weir.TakeAll}[random.IntN(2)], Charges: []weir.Charge{first}}
		if f.scenario.Saturated {
			b.Op = weir.TakeEach // all-or-nothing batches would leave units unused
		}
		for range random.IntN(n) {
			if c := charge(); !slices.Contains(b.Charges, c) {
				b.Charges = append(b.Charges, c)
			}
		}
		return func() { f.batch(node, &b) }
	}
	return func() { f.call(node, first.Key, first.Cost) }
}

// keyName returns the name of the i'th key.
func keyName(i int) string { return string(rune('a' + i)) }

// call is one Take.
func (f *fleet) call(node int, key string, cost int64) Call {
	return f.timed(node, weir.TakeEach, []weir.Charge{{Policy: f.policy, Key: key, Cost: cost}}, func(ctx context.Context) ([]weir.Decision, error) {
		d, err := f.nodes[node].Take(ctx, f.policy, key, cost)
		return []weir.Decision{d}, err
	})[0]
}

// batch is one call of Do.
func (f *fleet) batch(node int, b *weir.Batch) []Call {
	return f.timed(node, b.Op, b.Charges, func(ctx context.Context) ([]weir.Decision, error) {
		err := f.nodes[node].Do(ctx, b)
		return b.Decisions, err
	})
}

// timed has a caller make charges, and records the result.
func (f *fleet) timed(node int, op weir.Op, charges []weir.Charge, do func(context.Context) ([]weir.Decision, error)) (calls []Call) {
	seen := &storeDecisions{at: map[weir.Charge]time.Duration{}}
	ctx := context.WithValue(context.Background(), storeDecisionsKey{}, seen)
	if f.scenario.Deadline > 0 {
		within, cancel := context.WithTimeout(ctx, f.scenario.Deadline)
		defer cancel()
		ctx = within
	}
	start := f.now()
	decisions, err := do(ctx)
	end := f.now()
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for i, c := range charges {
		call := Call{
			Node: node, Op: op, Of: len(charges), Key: c.Key, Cost: c.Cost,
			Start: start, End: end, At: end, From: end, By: ByNode, Decision: decisions[i], Err: err,
		}
		if at, ok := seen.at[c]; ok {
			call.By, call.At, call.From = ByStore, at, at
		}
		calls = append(calls, call)
	}
	if f.crashed(node) {
		return calls // no caller got the decision
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, calls...)
	return calls
}

// schedule lets happen what is not demand.
func (f *fleet) schedule(wg *sync.WaitGroup) {
	for _, o := range f.scenario.Failovers {
		wg.Go(func() {
			time.Sleep(o.At - o.Lag - f.now())
			f.store.save()
			time.Sleep(o.At - f.now())
			f.store.failOver(o.Ahead)
		})
	}
	for _, c := range f.scenario.Closes {
		wg.Go(func() {
			time.Sleep(c.At - f.now())
			f.nodes[c.Node].Close()
		})
	}
	for _, c := range f.scenario.Changes {
		wg.Go(func() {
			time.Sleep(c.At - f.now())
			f.change(c)
		})
	}
}

func (f *fleet) change(c Change) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	n := f.nodes[c.Node]
	if c.Set {
		_ = n.Set(ctx, f.policy, f.raised()) // an error means that the store is unavailable
		return
	}
	for k := range f.scenario.Keys {
		_ = weir.Reset(ctx, n, f.policy, keyName(k)) // as above
	}
}

// raised is the limit that a Change puts in force.
func (f *fleet) raised() *weir.Policy {
	limits := slices.Clone(f.scenario.Limits)
	for i := range limits {
		limits[i].Rate, limits[i].Burst = 2*limits[i].Rate, 2*limits[i].Burst
	}
	return must(weir.NewPolicy("fleet", limits...))
}

// finish puts what happened in order.
func (f *fleet) finish(r *Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	r.Calls, r.Shares = f.calls, f.shares
	for _, op := range f.store.ops {
		r.Ops = append(r.Ops, *op)
	}
	slices.SortStableFunc(r.Ops, func(a, b Op) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Op, b.Op), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Units, b.Units))
	})
	slices.SortStableFunc(r.Calls, func(a, b Call) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Node, b.Node), cmp.Compare(a.End, b.End))
	})
	slices.SortStableFunc(r.Shares, func(a, b Grant) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Key, b.Key))
	})
	r.attribute(f.scenario)
}

// attribute finds out which calls were admitted on shares, by nobody, or by the store in
// a batch that another caller or the node itself has sent.
func (r *Result) attribute(s Scenario) {
	type grant struct {
		at    time.Duration
		node  int
		key   string
		units int64
	}
	shares := map[grant]int{}
	for _, g := range r.Shares {
		shares[grant{g.At, g.Node, g.Key, g.Units}]++
	}
	for i := range r.Calls {
		c := &r.Calls[i]
		if c.By == ByStore || !c.grants() {
			continue
		}
		g := grant{c.End, c.Node, c.Key, c.Cost}
		switch {
		case shares[g] > 0:
			shares[g]--
			c.By = ByShare
		case s.OnError == weir.FailOpen && c.Decision.Remaining == c.Decision.Limit:
			c.By = ByNobody
		case c.Of > 1:
			c.From = c.Start
		}
	}
	r.attributeOps()
}

type opKey struct {
	node int
	key  string
	cost int64
}

// attributeOps gives each charge that the store has admitted, and of which the caller is not known,
// to a caller that waited for such a one meanwhile: of several to the one that was answered first,
// so that as many as possible get one.
func (r *Result) attributeOps() {
	known, waiting := map[opKey][]time.Duration{}, map[opKey][]*Call{}
	for i := range r.Calls {
		c := &r.Calls[i]
		switch k := (opKey{c.Node, c.Key, c.Cost}); {
		case !c.grants():
		case c.By == ByStore:
			known[k] = append(known[k], c.At)
		case c.By == ByNode && c.End > c.Start:
			waiting[k] = append(waiting[k], c)
		}
	}
	for _, list := range waiting {
		slices.SortStableFunc(list, func(a, b *Call) int { return cmp.Compare(a.End, b.End) })
	}
	for _, op := range r.Ops {
		k := opKey{op.Node, op.Key, op.Units}
		if !op.Answered || !op.Allowed || op.Op != weir.TakeEach && op.Op != weir.TakeAll {
			continue
		}
		if i := slices.Index(known[k], op.At); i >= 0 {
			known[k] = slices.Delete(known[k], i, i+1)
			continue
		}
		i := slices.IndexFunc(waiting[k], func(c *Call) bool { return c.Start <= op.At && op.At <= c.End })
		if i >= 0 {
			c := waiting[k][i]
			c.By, c.At, c.From, c.Guessed = ByStore, op.At, op.At, true
			waiting[k] = slices.Delete(waiting[k], i, i+1)
		}
	}
}
