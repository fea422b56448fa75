// Package observe observes decisions: it counts them for Prometheus, keeps the keys with the most
// refusals, logs a sample of refusals, and sends decisions to subscribers. It is on the path of
// every request, so features that are not in use cost nothing.
package observe

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/mono"
	"github.com/weirlimit/weir/internal/topk"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/weirprom"
)

// Observer observes decisions. Make one with New, and call Run. All methods may be called by any
// number of goroutines.
type Observer struct {
	backend   weirprom.Backend // set by New, like the next three
	decisions *weirprom.Decisions
	limited   *topk.Sketch
	log       *slog.Logger
	events    events[ruleset.Record]

	violations events[guard.Violation]
	levels     events[budget.LevelChange]

	policies sync.Map // name → *watched
	last     atomic.Pointer[watched]
}

// keptLimited is the number of keys in the list of most refusals: every key with more than a
// thousandth of all refusals is in it.
const keptLimited = 1000

// watched has the counters of a policy.
type watched struct {
	policy    string
	decisions *weirprom.PolicyDecisions
	denials   Sampler
}

// New returns an Observer. Backend is the kind of the store.
func New(backend weirprom.Backend, log *slog.Logger) *Observer {
	return &Observer{
		backend: backend, decisions: weirprom.NewDecisions(weirprom.Options{}), limited: topk.New(keptLimited), log: log,
	}
}

// Decisions returns the collector of decisions.
func (o *Observer) Decisions() *weirprom.Decisions { return o.decisions }

// Top returns the keys with the most refusals lately. A label is a policy, a zero byte and a key.
func (o *Observer) Top(n int) []topk.Entry { return o.limited.Top(n) }

// Subscribe subscribes to all decisions, as adminapi.Config.Subscribe describes.
func (o *Observer) Subscribe() (records <-chan ruleset.Record, lost func() int64, cancel func(), err error) {
	return o.events.subscribe()
}

// Violated sends a violation to subscribers.
func (o *Observer) Violated(v guard.Violation) {
	if o.violations.watchers.Load() > 0 {
		o.violations.send(v)
	}
}

// SubscribeViolations subscribes to all violations of the guard.
func (o *Observer) SubscribeViolations() (violations <-chan guard.Violation, lost func() int64, cancel func(), err error) {
	return o.violations.subscribe()
}

// LevelChanged sends a change of the level of a budget to subscribers.
func (o *Observer) LevelChanged(c budget.LevelChange) {
	if o.levels.watchers.Load() > 0 {
		o.levels.send(c)
	}
}

// SubscribeLevels subscribes to all changes of the levels of budgets.
func (o *Observer) SubscribeLevels() (changes <-chan budget.LevelChange, lost func() int64, cancel func(), err error) {
	return o.levels.subscribe()
}

// Run decays the counts of Top until ctx ends.
func (o *Observer) Run(ctx context.Context) {
	tick := time.NewTicker(fadeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			o.limited.Decay(now.UnixNano())
		}
	}
}

const fadeEvery = 10 * time.Second

// Decided observes one decision. It does not retain r.
func (o *Observer) Decided(r *ruleset.Record) {
	if !r.Peek { // a peek is not counted
		o.count(r)
	}
	if o.log.Enabled(context.Background(), slog.LevelDebug) {
		o.log.Debug("decision", "policy", r.Policy(), "key", r.Key, "cost", r.Cost, "peek", r.Peek,
			"client", r.Client, "class", r.Class, "allowed", r.Allowed, "reason", r.Reason.String())
	}
	if o.events.watchers.Load() > 0 && !r.Peek {
		o.events.send(decided(r))
	}
}

// DecidedEach observes the decisions on several items. Took is the duration of the first; the
// others are not timed. Plain decisions are counted together. It retains nothing.
func (o *Observer) DecidedEach(items []ruleset.Item, verdicts []ruleset.Verdict, took time.Duration) {
	each := o.watchedEach()
	for len(verdicts) > 0 {
		n := 0
		if !each && took < 0 {
			n = plain(items, verdicts)
		}
		if n > 0 {
			o.watch(verdicts[0].Policy()).decisions.ObserveMany(o.backendOf(&verdicts[0].Decision), verdicts[0].Decision, false, n)
		} else {
			o.decidedItem(&items[0], &verdicts[0], took)
			took, n = ruleset.Untimed, 1
		}
		items, verdicts = items[n:], verdicts[n:]
	}
}

// Admitted counts n admitted decisions under v that were not timed. If each decision must be
// observed, it counts nothing and returns false: then the caller calls Decided for each.
func (o *Observer) Admitted(v *ruleset.Variant, n int) bool {
	if o.watchedEach() {
		return false
	}
	o.watch(v.Rule().Name()).decisions.ObserveMany(o.backend, weir.Decision{Allowed: true, Reason: weir.Admitted}, false, n)
	return true
}

// watchedEach reports whether each decision must be observed: there are subscribers, or a debug log.
func (o *Observer) watchedEach() bool {
	return o.events.watchers.Load() > 0 || o.log.Enabled(context.Background(), slog.LevelDebug)
}

// plain returns how many decisions, from the first on, are only counted: under one policy, by one
// backend, admitted, and not refused in shadow.
func plain(items []ruleset.Item, verdicts []ruleset.Verdict) (n int) {
	for n < len(verdicts) {
		v := &verdicts[n]
		if !v.Allowed || v.Reason != weir.Admitted || v.Shadow >= 0 || v.Variant != verdicts[0].Variant || v.Estimate != verdicts[0].Estimate || items[n].Peek {
			break
		}
		n++
	}
	return n
}

// records pools the records of decidedItem.
var records = sync.Pool{New: func() any { return new(ruleset.Record) }}

func (o *Observer) decidedItem(item *ruleset.Item, v *ruleset.Verdict, took time.Duration) {
	r := records.Get().(*ruleset.Record)
	*r = ruleset.NewRecord(&item.Query, v, item.Peek, took)
	o.Decided(r)
	*r = ruleset.Record{}
	records.Put(r)
}

func (o *Observer) count(r *ruleset.Record) {
	w := o.watch(r.Policy())
	if r.Allowed && r.Shadow >= 0 {
		w.decisions.Observe(o.backendOf(&r.Decision), weir.Decision{Reason: weir.Exhausted}, true, r.Took)
		return
	}
	w.decisions.Observe(o.backendOf(&r.Decision), r.Decision, false, r.Took)
	if !r.Allowed && r.Reason != weir.NotCharged { // NotCharged: another check of the batch was refused
		o.limited.Add(r.Policy()+"\x00"+r.Key, 1)
		w.tell(o.log, r)
	}
}

// backendOf returns the backend that decided: this node if it did so without a reply of the store,
// by a lease, an allowance, a cached denial or on_error.
func (o *Observer) backendOf(d *weir.Decision) weirprom.Backend {
	if d.Estimate || d.Reason == weir.StoreDown {
		return weirprom.Local
	}
	return o.backend
}

// watch returns the counters of a policy. Usually it is the same policy as in the last call.
func (o *Observer) watch(policy string) *watched {
	if w := o.last.Load(); w != nil && w.policy == policy {
		return w
	}
	found, ok := o.policies.Load(policy)
	if !ok {
		found, _ = o.policies.LoadOrStore(policy, &watched{policy: policy, decisions: o.decisions.Policy(policy)})
	}
	w := found.(*watched)
	o.last.Store(w)
	return w
}

// retryValue returns a RetryAfter for the log.
func retryValue(d time.Duration) any {
	if d == weir.Never {
		return "never"
	}
	return d
}

// tell logs a refusal, unless there were others in the last second: to log each would let refused
// callers fill the disk.
func (w *watched) tell(log *slog.Logger, r *ruleset.Record) {
	if since, ok := w.denials.Due(); ok {
		log.Info("denied", "policy", r.Policy(), "limited_by", r.LimitedBy(), "reason", r.Reason.String(),
			"retry_after", retryValue(r.RetryAfter), "client", r.Client, "class", r.Class, "since_last_line", since)
	}
}

// A Sampler says which of many events are logged: at most one a second.
type Sampler struct {
	next  atomic.Int64 // when the next line may be written, in ns; the goroutine whose swap succeeds writes it
	since atomic.Int64 // events since the last line
}

const sampleEvery = time.Second

// Due counts an event. If it is to be logged, it returns true, and the number of events since the
// last one that was.
func (s *Sampler) Due() (since int64, ok bool) {
	s.since.Add(1)
	now := mono.Now() // monotonic: a step of the wall clock must not suppress lines
	next := s.next.Load()
	if now < next || !s.next.CompareAndSwap(next, now+int64(sampleEvery)) {
		return 0, false
	}
	return s.since.Swap(0), true
}
