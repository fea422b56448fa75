package redisstore

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// A Replacement is a change, made by another process, of the limits in force for a policy that
// callers of this process use.
type Replacement struct {
	// Requested is the policy of the callers.
	Requested *weir.Policy

	// Old is the policy that was in force for them before the change.
	Old *weir.Policy

	// InForce is the policy in force for them now. It has the limits of Requested if the change
	// has put these in force again.
	InForce *weir.Policy

	// Since is when the change was made, by Redis's clock.
	Since time.Time

	// BeforeStart says that the change is older than this Store's first use of a policy of that
	// name: the process was started with limits that had been replaced already.
	BeforeStart bool
}

// warnReplaced is the default of Config.OnReplaced.
func warnReplaced(r Replacement) {
	slog.Warn("redisstore: another process has changed the limits of a policy, and its limits are in force; Set(ctx, p, p) puts p in force again",
		"policy", r.Requested.Name(), "requested", limitsText(r.Requested), "in_force", limitsText(r.InForce), "since", r.Since)
}

// limitsText formats limits: "10 per 1m0s, hourly 100 per 1h0m0s".
func limitsText(p *weir.Policy) string {
	var list []string
	for _, l := range p.Limits() {
		text := l.String()
		if l.Name != "main" {
			text = l.Name + " " + text
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// noted is the last known state of the limits in force for a caller's policy.
type noted struct {
	inForce uint64 // fingerprint
	version int    // of the history that said so
}

// note compares the limits in force for p, since the change last, with those last noted, and
// reports a difference unless this Store made the change. Of concurrent callers one
// reports; a caller with an older version of the history is ignored.
func (h *history) note(p *weir.Policy, last *change, version int) {
	if last == nil {
		return // p was never replaced
	}
	brought, in := fingerprint(p), fingerprint(last.new)
	h.mu.Lock()
	was, known := h.noted[brought]
	if !known {
		was.inForce = brought
	}
	if version < was.version {
		h.mu.Unlock()
		return
	}
	h.noteLocked(brought, noted{in, version})
	h.mu.Unlock()
	if in == was.inForce || last.by == h.store.id {
		return
	}
	h.store.replaced.add(Replacement{
		Requested: p, Old: last.old, InForce: last.new, Since: time.UnixMicro(last.at),
		BeforeStart: int64(last.version) <= h.first.Load(),
	})
}

// noteOwn notes that this Store's own Set has put new in force for old and new.
func (h *history) noteOwn(old, new *weir.Policy) {
	in := noted{fingerprint(new), h.version()}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noteLocked(fingerprint(old), in)
	h.noteLocked(in.inForce, in)
}

// noteLocked requires h.mu. There is at most one entry for each policy that was part of a Set.
func (h *history) noteLocked(brought uint64, in noted) {
	if h.noted == nil {
		h.noted = map[uint64]noted{}
	}
	h.noted[brought] = in
}

// replaced calls Config.OnReplaced, in order, in a goroutine that runs while the queue is not
// empty.
type replaced struct {
	hook func(Replacement) // set by New

	wg      sync.WaitGroup // of the goroutine
	mu      sync.Mutex     // guards the fields below; not held during hook
	queue   []Replacement
	running bool
	closed  bool
}

func (r *replaced) add(one Replacement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.queue = append(r.queue, one)
	if !r.running {
		r.running = true
		r.wg.Go(r.run)
	}
}

func (r *replaced) run() {
	for {
		r.mu.Lock()
		list := r.queue
		r.queue = nil
		r.running = len(list) > 0
		r.mu.Unlock()
		if len(list) == 0 {
			return
		}
		for _, one := range list {
			r.hook(one)
		}
	}
}

// close waits until everything queued was reported; later replacements are dropped.
func (r *replaced) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.wg.Wait()
}
