package budget

import (
	"context"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// Ledger is what this process has charged an account, in one unit. At any time
//
//	Granted + Overrun = Used + Returned + Expired + Open
type Ledger struct {
	Granted  int64 `json:"granted"`  // admitted, held ones included
	Overrun  int64 `json:"overrun"`  // used beyond reservations
	Used     int64 `json:"used"`     // charged at once, or settled as used
	Returned int64 `json:"returned"` // of reservations, not used
	Expired  int64 `json:"expired"`  // of reservations that were not settled in time; they count as used
	Open     int64 `json:"open"`     // held by open reservations
}

// closes reports whether the ledger's sides are equal.
func (l Ledger) closes() bool { return l.Granted+l.Overrun == l.Used+l.Returned+l.Expired+l.Open }

// granted counts an admitted cost: as used or, if it was reserved, as open.
func (a *Account) granted(costs []ruleset.Cost, methods []string, r *Reservation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range costs {
		l := a.ledgerLocked(c.Unit)
		l.Granted += c.Amount
		if r == nil {
			l.Used += c.Amount
		} else {
			l.Open += c.Amount
		}
	}
	if r != nil {
		a.open[r] = struct{}{}
	}
	for _, method := range methods {
		a.countLocked(method)
	}
}

// overran counts a cost that was spent without having been granted.
func (a *Account) overran(costs []ruleset.Cost, methods []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range costs {
		l := a.ledgerLocked(c.Unit)
		l.Overrun += c.Amount
		l.Used += c.Amount
	}
	for _, method := range methods {
		a.countLocked(method)
	}
}

// maxMethods bounds the methods that are counted by name.
const maxMethods = 1000

// countLocked counts a call of a method; those of too many methods are counted together.
func (a *Account) countLocked(method string) {
	if _, known := a.methods[method]; !known && len(a.methods) >= maxMethods {
		method = AnyMethod
	}
	a.methods[method]++
}

func (a *Account) ledgerLocked(unit string) *Ledger {
	l := a.ledger[unit]
	if l == nil {
		l = &Ledger{}
		a.ledger[unit] = l
	}
	return l
}

// sweepLocked moves what expired reservations hold from open to expired.
func (a *Account) sweepLocked(now weir.Instant) {
	for r := range a.open {
		if r.expiry <= now {
			a.expireLocked(r)
		}
	}
}

func (a *Account) expireLocked(r *Reservation) {
	if _, open := a.open[r]; !open {
		return
	}
	delete(a.open, r)
	for _, c := range r.costs {
		l := a.ledgerLocked(c.Unit)
		l.Open -= c.Amount
		l.Expired += c.Amount
	}
}

// Reservation is a cost that is held for a call. Its methods may be called by several goroutines; the
// first that settles it wins.
type Reservation struct {
	account *Account // set once, like the next three
	costs   []ruleset.Cost
	ticket  *ruleset.Ticket
	expiry  weir.Instant

	mu      sync.Mutex // guards the fields below
	settled bool
	outcome weir.Settled
}

func (a *Account) newReservation(costs []ruleset.Cost, t *ruleset.Ticket, ttl time.Duration) *Reservation {
	if ttl == 0 {
		ttl = time.Minute
	}
	return &Reservation{account: a, costs: costs, ticket: t, expiry: a.config.Clock().Add(ttl)}
}

// Settle ends the reservation with what was used: the rest is given back at once, and what was used
// beyond the reservation is charged whether there is room or not. Units that the cost does not name
// were used as reserved. After the first time it changes nothing and returns what that returned. If
// it returns an error, it may be called again.
func (r *Reservation) Settle(ctx context.Context, used Cost) (weir.Settled, error) {
	amounts, err := r.used(used)
	if err != nil {
		return weir.Settled{}, err
	}
	return r.settle(ctx, amounts)
}

// Commit ends the reservation: all of it was used.
func (r *Reservation) Commit(ctx context.Context) (weir.Settled, error) {
	return r.settle(ctx, r.costs)
}

// Cancel ends the reservation and gives all of it back. It is right for a deferred call: after Settle
// or Commit it changes nothing.
func (r *Reservation) Cancel(ctx context.Context) (weir.Settled, error) {
	none := make([]ruleset.Cost, len(r.costs))
	for i, c := range r.costs {
		none[i].Unit = c.Unit
	}
	return r.settle(ctx, none)
}

// used returns what was used of each unit.
func (r *Reservation) used(cost Cost) ([]ruleset.Cost, error) {
	amounts, err := r.account.costs(cost)
	if err != nil {
		return nil, err
	}
	if cost.units == nil {
		return amounts, nil
	}
	for i := range amounts {
		if _, named := cost.units[amounts[i].Unit]; !named {
			amounts[i] = r.costs[i]
		}
	}
	return amounts, nil
}

func (r *Reservation) settle(ctx context.Context, used []ruleset.Cost) (weir.Settled, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.settled {
		return r.outcome, nil
	}
	if ctx.Err() != nil { // what was used must be charged nevertheless
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
	}
	out, err := r.account.engine.Settle(ctx, r.ticket, ruleset.Used{Costs: used})
	if err != nil {
		return out, err
	}
	r.settled, r.outcome = true, out
	r.account.settled(r, used, out.Late)
	return out, nil
}

// settled counts the end of a reservation.
func (a *Account) settled(r *Reservation, used []ruleset.Cost, late bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if late {
		a.expireLocked(r)
		return
	}
	if _, open := a.open[r]; !open { // it was swept, a moment before the store took it for over
		for _, c := range r.costs {
			l := a.ledgerLocked(c.Unit)
			l.Expired -= c.Amount
			l.Open += c.Amount
		}
	}
	delete(a.open, r)
	for i, c := range r.costs {
		l := a.ledgerLocked(c.Unit)
		l.Open -= c.Amount
		l.Used += used[i].Amount
		l.Returned += max(0, c.Amount-used[i].Amount)
		l.Overrun += max(0, used[i].Amount-c.Amount)
	}
}
