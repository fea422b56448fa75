package identity

import (
	"log/slog"
	"maps"
	"sync"
	"time"
)

// Failures counts refused callers, logs failed authentications, and throttles the wrong tokens of an address to 20
// per minute. Clients and operators are recorded apart. It never refuses a valid token. Authenticators
// of successive configurations share one. The zero value is ready for use; a nil Failures records
// nothing. Its methods may be called concurrently.
type Failures struct {
	// Log receives at most one line per second and kind. The default is not to log. It must not
	// change once the Failures is in use.
	Log *slog.Logger

	mu    sync.Mutex // guards the field below
	kinds [kinds]tally
}

// kind is a kind of caller.
type kind uint8

const (
	clientKind kind = iota
	adminKind
	kinds
)

var kindNames = [kinds]string{"client", "admin"}

// reason is why a caller was refused.
type reason uint8

const (
	missing   reason = iota // there was no token
	unknown                 // nobody has the token
	throttled               // nobody has the token, and too many such came from the address
	forbidden               // the caller is known and lacks the permission
	reasons
)

var reasonNames = [reasons]string{"missing", "unknown", "throttled", "forbidden"}

// tally is the record of one kind of caller.
type tally struct {
	counts   [reasons]uint64
	unlogged uint64    // failures since the last line
	logged   time.Time // when the last line was written

	// whole has, for each address that sent wrong tokens, when it will again have all of its
	// failures left. It is the state of GCRA.
	whole map[string]time.Time
	swept time.Time // when those that are over were last removed from whole
}

const (
	failedLogins      = "failed-logins" // the quota's name in Refusal.Details
	failuresPerMinute = 20
	failureInterval   = time.Minute / failuresPerMinute
	failureAddresses  = 10_000 // of each kind
)

// record counts a refusal and throttles the address of a wrong token: it returns how long that has
// to wait if it has sent too many, and otherwise 0. It logs a failed authentication if no line of its
// kind was written in the last second, without what the caller claims to be, since that could be a
// misplaced token.
func (f *Failures) record(k kind, why reason, remote string) (wait time.Duration) {
	if f == nil {
		return 0
	}
	now := time.Now()
	f.mu.Lock()
	t := &f.kinds[k]
	if why == unknown {
		if wait = t.chargeLocked(network(remote), now); wait > 0 {
			why = throttled
		}
	}
	due := t.countLocked(why, now)
	f.mu.Unlock()
	if due > 0 && f.Log != nil {
		f.Log.Warn("authentication failed", "kind", kindNames[k], "reason", reasonNames[why], "remote", remote, "failures", due)
	}
	return wait
}

// countLocked counts a failure. If a line is due, it returns the number of failures since the last
// one, this one included, and otherwise 0. It requires Failures.mu.
func (t *tally) countLocked(why reason, now time.Time) (due uint64) {
	t.counts[why]++
	if why == forbidden {
		return 0
	}
	if t.unlogged++; now.Sub(t.logged) >= time.Second {
		due, t.unlogged, t.logged = t.unlogged, 0, now
	}
	return due
}

// chargeLocked charges one failure to an address. It requires Failures.mu. An address for which
// there is no room is not throttled: a throttle shared with others would refuse callers for what
// others did, and all it would spare is a lookup.
func (t *tally) chargeLocked(address string, now time.Time) (wait time.Duration) {
	whole, known := t.whole[address]
	if !known && !t.hasRoomLocked(now) {
		return 0
	}
	if whole.Before(now) {
		whole = now
	}
	if wait := whole.Sub(now) - (failuresPerMinute-1)*failureInterval; wait > 0 {
		return wait
	}
	if t.whole == nil {
		t.whole = map[string]time.Time{}
	}
	t.whole[address] = whole.Add(failureInterval)
	return 0
}

// hasRoomLocked reports whether one more address fits. Removing those that are over takes a while,
// so it is done once a second at most. It requires Failures.mu.
func (t *tally) hasRoomLocked(now time.Time) bool {
	if len(t.whole) >= failureAddresses && now.Sub(t.swept) >= time.Second {
		t.swept = now
		maps.DeleteFunc(t.whole, func(_ string, whole time.Time) bool { return !whole.After(now) })
	}
	return len(t.whole) < failureAddresses
}

// Each calls yield with the number of failures of each kind and reason, also of those that never
// happened: 8 in all.
func (f *Failures) Each(yield func(kind, reason string, count uint64)) {
	f.mu.Lock()
	kinds := f.kinds
	f.mu.Unlock()
	for k := range kinds {
		for why, n := range kinds[k].counts {
			yield(kindNames[k], reasonNames[why], n)
		}
	}
}
