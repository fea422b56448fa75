package weir

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/compiled"
)

// Reservation is one or more charges that were made for work whose cost is known
// only afterwards. Its methods may be called by several goroutines; the first
// that settles it wins, and the others get the same outcome.
type Reservation struct {
	// Decision is the outcome: if refused, that of the charge with the longest
	// RetryAfter, and nothing is held.
	Decision Decision

	limiter Limiter

	mu      sync.Mutex // guards the fields below
	batch   Batch
	settled bool
	outcome []Settled
}

// Reserve charges all of charges or none, and holds them until they are settled
// or ttl is over (0 means a minute; at most an hour), which counts as using
// all. Reserved units count as used until they are settled. If Reserve is refused,
// Reservation.Decision says why, and Commit and Cancel do nothing.
func Reserve(ctx context.Context, l Limiter, ttl time.Duration, charges ...Charge) (*Reservation, error) {
	r := &Reservation{limiter: l, batch: Batch{Op: ReserveAll, Charges: slices.Clone(charges), TTL: ttl}}
	if err := l.Do(ctx, &r.batch); err != nil {
		return nil, err
	}
	r.Decision = Decision{Allowed: true, Reason: Admitted}
	if i := r.batch.Worst(); i >= 0 {
		r.Decision = r.batch.Decisions[i]
	}
	r.settled = !r.Decision.Allowed
	return r, nil
}

// Worst returns the index of the decision with the longest RetryAfter or, if all were
// admitted, with the least remaining; -1 if there is none.
func (b *Batch) Worst() int {
	worst := -1
	for i, d := range b.Decisions {
		if worst < 0 || d.worse(b.Decisions[worst]) {
			worst = i
		}
	}
	return worst
}

func (d Decision) worse(o Decision) bool {
	switch fits := d.fits(); {
	case fits != o.fits():
		return !fits
	case fits:
		return d.Remaining < o.Remaining
	}
	return d.RetryAfter > o.RetryAfter
}

// fits reports whether the charge itself was not refused.
func (d Decision) fits() bool { return d.Reason <= Admitted }

// Commit ends the reservation. Used is the actual cost of each charge, in order; none at
// all means as reserved. Unused units are refunded exactly, and units used beyond the
// reservation are charged and reported as Overrun. Commit returns how each charge was settled,
// in order. Once the reservation is settled, Commit changes nothing and returns the same again.
// If it returns an error, it may be called again.
//
// If ctx has ended, Commit still runs, with a timeout of one second.
func (r *Reservation) Commit(ctx context.Context, used ...int64) ([]Settled, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.settled {
		return r.outcome, nil
	}
	b := Batch{Op: Settle, Charges: slices.Clone(r.batch.Charges), Receipts: r.batch.Receipts}
	if len(used) > 0 && len(used) != len(b.Charges) {
		return nil, compiled.Invalid("%d costs for %d charges: a reservation is settled with one for each, or none", len(used), len(b.Charges))
	}
	for i, u := range used {
		b.Charges[i].Cost = u
	}
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), settleGrace)
		defer cancel()
	}
	if err := r.limiter.Do(ctx, &b); err != nil {
		return nil, err
	}
	r.settled, r.outcome = true, b.Settled
	return r.outcome, nil
}

// settleGrace is how long settling may take when its context has ended.
const settleGrace = time.Second

// Cancel ends the reservation and gives all of it back. It is right for a
// deferred call: after Commit it changes nothing.
func (r *Reservation) Cancel(ctx context.Context) ([]Settled, error) {
	return r.Commit(ctx, make([]int64, len(r.batch.Charges))...)
}

// Renew moves the expiry to ttl from now. It returns false if the reservation
// is over.
func (r *Reservation) Renew(ctx context.Context, ttl time.Duration) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.settled {
		return false, nil
	}
	b := Batch{Op: Renew, Charges: r.batch.Charges, Receipts: r.batch.Receipts, TTL: ttl}
	if err := r.limiter.Do(ctx, &b); err != nil {
		return false, err
	}
	return b.Allowed(), nil
}
