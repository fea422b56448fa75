package weir

import (
	"fmt"
	"math"
	"time"

	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/compiled"
)

// Decision is the answer to a charge. A refusal is a Decision, not an error, and
// has changed nothing. The zero Decision is not Allowed: nothing was charged.
type Decision struct {
	// Allowed says whether the charge was made.
	Allowed bool

	// Reason says why: Admitted, or why it was refused.
	Reason Reason

	// By is the index in Policy.Limits of the limit that refused; if several did, of the
	// one with the longest RetryAfter. If the charge was admitted, it is the limit with
	// the least remaining, and of several the one that resets last. It is beyond
	// them if it was no limit that refused, but a ruleset.Gate.
	By uint8

	// Estimate says that Limit, Remaining and the times are what this process
	// knows, not what the shared store would say. Allowed is final all the
	// same. See package tiered.
	Estimate bool

	// Held says of a refusal, other than TooCostly, that unexpired reservations
	// are open for the key. Any of them may be settled at any moment, by any process,
	// so the refusal may end before RetryAfter, and must not be cached for long. The
	// same is said of refusals by a plan that a ruleset.Gate gives for a while.
	Held bool

	// Limit is the most units that By ever admits at once, for example 100.
	Limit int64

	// Remaining is how many units By has left after this charge, for example
	// 42. Units held by open reservations are not in it.
	Remaining int64

	// RetryAfter is how long to wait until the same charge is admitted if
	// nothing else happens, for example 250ms; one nanosecond less is too
	// early. It is 0 if the charge was admitted and Never if waiting cannot
	// help.
	RetryAfter time.Duration

	// ResetAfter is how long until By is as if unused, for example 1s. Open
	// reservations are assumed to run to their expiry. It is Never if one does
	// not expire.
	ResetAfter time.Duration
}

// Never is the RetryAfter of a charge that waiting cannot help, and the ResetAfter of a
// limit with units reserved without expiry. It is the longest duration there is, so that a
// caller that sleeps for it does not spin. On the wire it is -1.
const Never time.Duration = math.MaxInt64

// Reason says why a decision is what it is.
type Reason uint8

// The reasons. Their names are part of the wire format.
const (
	NotCharged Reason = iota // nothing was decided; also of a charge that fits, in a batch that was refused because of another
	Admitted                 // the charge was made
	Exhausted                // not enough units remain; wait RetryAfter or, if that is Never, until a reservation is settled
	TooCostly                // the cost exceeds what the limit ever admits
	Invalid                  // a cost or time to live is out of range, or Take met a Concurrency limit
	QueueFull                // too many are waiting, or too many reservations are open
	TooLate                  // the caller's deadline comes before its turn
	StoreDown                // the store is unavailable, and the policy says to refuse then
	Blocked                  // the key is blocked
)

var reasonNames = [...]string{
	"not_charged", "admitted", "exhausted", "too_costly", "invalid", "queue_full", "too_late", "store_down", "blocked",
}

// String returns the name on the wire, such as "too_costly".
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Err returns nil if the charge was admitted, else a *DeniedError.
func (d Decision) Err() error {
	if d.Allowed {
		return nil
	}
	return &DeniedError{d}
}

// String returns the decision in a few words.
func (d Decision) String() string {
	switch {
	case d.Allowed && d.ResetAfter == Never:
		return fmt.Sprintf("admitted, %d of %d remain", d.Remaining, d.Limit)
	case d.Allowed:
		return fmt.Sprintf("admitted, %d of %d remain, reset after %v", d.Remaining, d.Limit, d.ResetAfter)
	case d.Reason == NotCharged:
		return "not charged"
	case d.RetryAfter == Never && d.Held:
		return fmt.Sprintf("refused: %v until a reservation is settled", d.Reason)
	case d.RetryAfter == Never:
		return fmt.Sprintf("refused: %v, waiting cannot help", d.Reason)
	case d.Reason == TooLate:
		return fmt.Sprintf("refused: %v: it would be admitted in %v, after the deadline", d.Reason, d.RetryAfter)
	}
	return fmt.Sprintf("refused: %v, retry after %v", d.Reason, d.RetryAfter)
}

// DeniedError is a refusal where only an error can be returned.
type DeniedError struct{ Decision Decision }

func (e *DeniedError) Error() string { return "weir: " + e.Decision.String() }

// newDecision makes a Decision of a ledger's verdict at now. Package storeapi has the same
// for stores.
func newDecision(v algo.Verdict, now Instant) Decision {
	d := Decision{
		Allowed:    v.OK,
		Reason:     Admitted,
		By:         v.By,
		Held:       v.Held,
		Limit:      v.Limit,
		Remaining:  v.Remaining,
		ResetAfter: compiled.Until(v.ResetAt, int64(now)),
	}
	if v.OK {
		return d
	}
	d.RetryAfter = compiled.Until(v.RetryAt, int64(now))
	d.Reason = Exhausted
	if v.TooCostly {
		d.Reason = TooCostly
	}
	return d
}

func invalid() Decision { return Decision{Reason: Invalid, RetryAfter: Never} }
