package upstream

import (
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
)

// An endpoint is an Endpoint in use. Its settings never change: another configuration makes another one, with the
// same memory.
type endpoint struct {
	Endpoint
	index   int
	url     *url.URL
	header  http.Header     // what is added to requests
	secrets []string        // parts of the URL and the headers, see redact
	policy  *weir.Policy    // its limits, nil if there are none
	views   []*weir.Policy  // each of its limits alone, see viewsOf
	budget  *budget.Account // nil if there is none
	memory  *memory
	quota   *quota
	group   *gate  // that of its provider
	chain   uint64 // what a probe has to confirm before the endpoint gets calls, 0 for nothing
}

// A memory is what is remembered of an endpoint, as long as its alias and URL stay.
type memory struct {
	gate
	stats    counters
	inFlight atomic.Int64
	failures atomic.Int64 // in a row
	latency  atomic.Int64 // moving average in nanoseconds, 0 if none is known
	head     atomic.Uint64
	chain    atomic.Uint64 // the id that it has answered a probe with, 0 if none
	confirms atomic.Int64  // probes since its chain was asked for; see recheckChain
	vouched  atomic.Int64  // when a probe has succeeded, in Unix nanoseconds

	// probeFailed is whether the last probe has failed, and suspected since when another one is awaited because of failures,
	// in Unix nanoseconds, 0 if none is.
	probeFailed atomic.Bool
	suspected   atomic.Int64

	wrong    atomic.Bool  // it is on another chain, or too far behind
	probing  atomic.Bool  // a probe is under way
	asked    atomic.Int64 // when the last probe began, in Unix nanoseconds
	learning budget.Learning

	// fullAt and refill say what is left, by the last decision: all of it at fullAt, and nothing refill before
	// that. They are written without order; what is read is a hint.
	fullAt, refill atomic.Int64 // nanoseconds
}

// A quota is what refusals of rate and quota close: an account's, or an endpoint's that has no budget.
type quota struct {
	gate
	account *budget.Account // nil if there is none
}

// ready is that of the gate and, as other pools may know more, of the account.
func (q *quota) ready(now time.Time) (at time.Time, ok bool) {
	at, ok = q.gate.ready(now)
	if q.account == nil {
		return at, ok
	}
	if d := q.account.Cooldown(); d > 0 && (ok || at.Before(now.Add(d))) {
		return now.Add(d), false
	}
	return at, ok
}

// gates are those that a call to the endpoint passes: its own, that of its quota and that of its provider.
func (e *endpoint) gates() [3]*gate {
	return [...]*gate{&e.memory.gate, &e.quota.gate, e.group}
}

// takes reports whether the endpoint takes a call at all.
func (e *endpoint) takes(c *Call) bool {
	if e.Unselectable || c.Pinned != "" && c.Pinned != e.Alias {
		return false
	}
	if len(e.Allow) == 0 && len(e.Deny) == 0 {
		return true
	}
	for _, method := range c.Methods {
		if matchesAny(e.Deny, method) || len(e.Allow) > 0 && !matchesAny(e.Allow, method) {
			return false
		}
	}
	return true
}

// The names of what refuses a call that is no limit.
const (
	limitedByRefusal  = "cooldown"    // the account has been refused, and no call is sent before it may succeed
	limitedByFailure  = "failure"     // the endpoint has failed, or its provider is overloaded
	limitedByInFlight = "concurrency" // as many calls are in flight as may be
)

// closed returns why the endpoint takes no call at all now, or no probe, and until when. It does not look at limits.
func (e *endpoint) closed(now time.Time, probe bool) (r refusal, closed bool) {
	r = refusal{endpoint: e, at: now}
	note := func(at time.Time, ready bool, why string) {
		switch {
		case ready:
			return
		case !closed || at.IsZero() || !r.at.IsZero() && at.After(r.at):
			r.at, r.limit = at, why
		}
		closed = true
	}
	at, ready := e.memory.gate.ready(now)
	note(at, ready, limitedByFailure)
	if !probe {
		note(now.Add(recheck), e.isConfirmed(), limitedByFailure)
	}
	at, ready = e.quota.ready(now)
	note(at, ready, limitedByRefusal)
	at, ready = e.group.ready(now)
	note(at, ready, limitedByFailure)
	if !closed && e.Concurrency > 0 && e.memory.inFlight.Load() >= int64(e.Concurrency) {
		note(time.Time{}, false, limitedByInFlight)
	}
	return r, closed
}

// isConfirmed reports whether the endpoint is known to be on the right chain, if that is asked for.
func (e *endpoint) isConfirmed() bool { return e.chain == 0 || e.memory.chain.Load() == e.chain }

// isDown reports whether the endpoint gets no call until a probe succeeds or an operator acts.
func (e *endpoint) isDown() bool { return e.memory.gate.isForever() }

// left returns the share of its units that the endpoint has, as far as that is known: 0 to 1.
func (m *memory) left(now time.Time) float64 {
	refill := m.refill.Load()
	if refill <= 0 {
		return 1
	}
	missing := float64(m.fullAt.Load()-now.UnixNano()) / float64(refill)
	return min(1, max(0, 1-missing))
}

// learn notes what a decision says about what is left.
func (m *memory) learn(now time.Time, d weir.Decision) {
	if used := d.Limit - d.Remaining; used > 0 && d.ResetAfter > 0 && d.ResetAfter < 365*24*time.Hour {
		m.refill.Store(int64(float64(d.ResetAfter) * float64(d.Limit) / float64(used)))
		m.fullAt.Store(now.UnixNano() + int64(d.ResetAfter))
	}
}

// measured adds a latency to the moving average.
func (m *memory) measured(d time.Duration) {
	m.stats.latency.Add(d)
	for {
		old := m.latency.Load()
		next := int64(d)
		if old > 0 {
			next = old + (next-old)/5
		}
		if m.latency.CompareAndSwap(old, max(1, next)) {
			return
		}
	}
}
