package weir

import (
	"context"
	"time"
)

// Limiter decides for many keys. It is implemented by the stores, by what wraps
// them, and by the client of the daemon. All methods may be called by any number
// of goroutines.
//
// An error means that no decision could be made; a refusal is a Decision. ErrInvalid,
// ErrState, ErrBusy, ErrUnavailable and ErrUnknown say what kind of error it is.
// Limiters do not keep the key strings they are given.
type Limiter interface {
	// Take charges cost units to key under p if they fit all of p's limits,
	// and nothing otherwise.
	Take(ctx context.Context, p *Policy, key string, cost int64) (Decision, error)

	// Do carries out a batch.
	Do(ctx context.Context, b *Batch) error

	// Set puts new in force wherever old was: calls that still pass old are
	// decided by new. Both must have the same name. Every key's units in use
	// are kept.
	Set(ctx context.Context, old, new *Policy) error
}

// Charge is what is taken, from whom, under which policy.
type Charge struct {
	Policy *Policy
	Key    string
	Cost   int64
}

// Op is what a Batch does.
type Op uint8

// The operations of a Batch.
const (
	TakeEach   Op = iota // each charge on its own
	TakeAll              // all charges or none
	ReserveAll           // all charges or none, held for TTL
	PeekEach             // what Take would say of each
	Settle               // end reservations: Charge.Cost is what was used; may be repeated after a lost reply
	Renew                // move reservations' expiry to TTL from now
	ResetEach            // forget what each key has used; Cost must be valid but plays no part
	DebitEach            // charge each whether it fits or not: for units that were used already
)

// Batch is several charges in one call and with one clock reading. The caller
// owns it and may use it again: Do makes Decisions, Receipts and Settled as long
// as Charges, reusing their arrays.
//
// Charges of one batch to the same policy and key add up. In TakeAll and ReserveAll one
// refusal refuses all: no Decision is Allowed then, and Reason NotCharged means that the
// charge itself would have fitted.
//
// DebitEach makes each charge on its own and unconditionally, also beyond the capacity. GCRA
// and TokenBucket owe at most Limit.MaxDebt, and windows count beyond their limit. The
// Decision is Allowed and reports the tightest limit after the charge. A limiter that has
// recorded the charge for a store that is unavailable may report Reason StoreDown. Slots
// cannot be owed: a policy that limits concurrency gets ErrReserveOnly, and nothing is charged.
//
// Used is for nodes that grant units between two calls to a store: how many units of each
// charge's key the store does not know of yet. The store charges them as DebitEach does,
// before it decides and also if the batch is then refused. Used is nil, or has one number for
// each charge of TakeEach, TakeAll or ReserveAll. Stores support it; other limiters may
// return ErrInvalid.
type Batch struct {
	Op        Op
	Charges   []Charge
	Used      []int64       // nil, or units to charge unconditionally first, one per charge
	TTL       time.Duration // of reservations; 0 means a minute
	Decisions []Decision    // one per charge; zero after Settle and ResetEach; what remains after DebitEach
	Receipts  []Receipt     // written by ReserveAll, read by Settle and Renew
	Settled   []Settled     // written by Settle
}

// Receipt is what a charge of ReserveAll took, enough to settle it together
// with the same policy and key, also from another process.
type Receipt struct {
	ID     [16]byte // random
	Units  int64
	Expiry Instant
}

// Allowed says whether all charges were admitted.
func (b *Batch) Allowed() bool {
	for i := range b.Decisions {
		if !b.Decisions[i].Allowed {
			return false
		}
	}
	return true
}

// Peek says what Take would, and changes nothing.
func Peek(ctx context.Context, l Limiter, p *Policy, key string, cost int64) (Decision, error) {
	b := Batch{Op: PeekEach, Charges: []Charge{{p, key, cost}}}
	if err := l.Do(ctx, &b); err != nil {
		return Decision{}, err
	}
	return b.Decisions[0], nil
}

// Reset forgets what key has used under p. Open reservations stay.
func Reset(ctx context.Context, l Limiter, p *Policy, key string) error {
	return l.Do(ctx, &Batch{Op: ResetEach, Charges: []Charge{{p, key, 0}}})
}
