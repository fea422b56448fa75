package budget

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// Ledger is what this process has charged an account, in one unit. At any time
//
//	Granted + Overrun = Used + Returned + Expired + Open
//
// A reservation that another process settles or renews expires here.
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

// granted counts an admitted query: as used or, if it was reserved, as open. Its costs, which the account has made,
// are not changed any more.
func (a *Account) granted(q *ruleset.Query, t *ruleset.Ticket, ttl time.Duration) {
	now := a.clock()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range q.Costs {
		l := a.ledgerLocked(c.Unit)
		l.Granted += c.Amount
		if t == nil {
			l.Used += c.Amount
		} else {
			l.Open += c.Amount
		}
	}
	if t != nil {
		if now.Sub(a.swept) >= sweepEvery { // where nobody asks for the usage, expired ones must not stay
			a.sweepLocked(now)
		}
		a.open[t.ID()] = openReservation{costs: q.Costs, expiry: expiry(now, ttl)}
	}
	for _, method := range q.Methods {
		a.countLocked(method)
	}
}

// overran counts a query that was spent without having been granted.
func (a *Account) overran(q *ruleset.Query) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range q.Costs {
		l := a.ledgerLocked(c.Unit)
		l.Overrun += c.Amount
		l.Used += c.Amount
	}
	for _, method := range q.Methods {
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

// openReservations are the reservations of this process that are not settled, by the ids of their
// tickets. The engine bounds how many there are.
type openReservations map[[16]byte]openReservation

type openReservation struct {
	costs  []ruleset.Cost
	expiry weir.Instant
}

// sweepEvery is how long new reservations let pass before those that have expired are looked for.
const sweepEvery = time.Second

// expiry returns when a reservation expires that was made at now or before.
func expiry(now weir.Instant, ttl time.Duration) weir.Instant {
	if ttl == 0 {
		ttl = defaultTTL
	}
	return now.Add(ttl)
}

// defaultTTL is weir's for reservations.
const defaultTTL = time.Minute

// sweepLocked moves what expired reservations hold from open to expired.
func (a *Account) sweepLocked(now weir.Instant) {
	a.swept = now
	for id, r := range a.open {
		if r.expiry <= now {
			a.expireLocked(id)
		}
	}
}

// expireLocked counts an open reservation as expired.
func (a *Account) expireLocked(id [16]byte) {
	costs := a.open[id].costs
	delete(a.open, id)
	for _, c := range costs {
		l := a.ledgerLocked(c.Unit)
		l.Open -= c.Amount
		l.Expired += c.Amount
	}
}

// Reservation is a cost that is held for a call. Its methods may be called by several goroutines; the
// first that settles it wins.
type Reservation struct {
	account *Account // set once, like the next two
	costs   []ruleset.Cost
	ticket  *ruleset.Ticket

	mu      sync.Mutex // guards the fields below
	settled bool
	outcome weir.Settled
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

// used returns what was used of each unit that is reserved.
func (r *Reservation) used(cost Cost) ([]ruleset.Cost, error) {
	units := make([]string, len(r.costs))
	for i, c := range r.costs {
		units[i] = c.Unit
	}
	amounts, err := r.account.costs(units, cost)
	if err != nil || cost.units == nil {
		return amounts, err
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
	out, err := r.account.settle(ctx, r.ticket, r.costs, ruleset.Used{Costs: used})
	if err == nil {
		r.settled, r.outcome = true, out
	}
	return out, err
}

// settle ends a reservation. Reserved is what it holds, nil if that may be unknown to this process.
func (a *Account) settle(ctx context.Context, t *ruleset.Ticket, reserved []ruleset.Cost, used ruleset.Used) (weir.Settled, error) {
	counted := used
	if r, err := a.rule(); err == nil { // of units that the limits count no more there is nothing to settle
		removed := func(c ruleset.Cost) bool { return !r.Counts(c.Unit) }
		if slices.ContainsFunc(used.Costs, removed) {
			counted.Costs = slices.DeleteFunc(slices.Clone(used.Costs), removed)
		}
	}
	out, err := a.engine.Settle(ctx, t, counted)
	if err == nil {
		a.settled(t.ID(), reserved, used, out.Late)
	}
	return out, err
}

// settled counts the end of a reservation.
func (a *Account) settled(id [16]byte, reserved []ruleset.Cost, used ruleset.Used, late bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, open := a.open[id]
	switch {
	case late:
		a.expireLocked(id)
		return
	case open:
		reserved = r.costs
	default: // if it is ours, it was swept, a moment before the store took it for over
		for _, c := range reserved {
			l := a.ledgerLocked(c.Unit)
			l.Expired -= c.Amount
			l.Open += c.Amount
		}
	}
	delete(a.open, id)
	for _, c := range reserved {
		l, n := a.ledgerLocked(c.Unit), usedOf(used, c)
		l.Open -= c.Amount
		l.Used += n
		l.Returned += max(0, c.Amount-n)
		l.Overrun += max(0, n-c.Amount)
	}
}

// usedOf returns how much was used of a reserved amount.
func usedOf(used ruleset.Used, reserved ruleset.Cost) int64 {
	for _, c := range used.Costs {
		if c.Unit == reserved.Unit && !used.All && !used.None {
			return c.Amount
		}
	}
	if used.None {
		return 0
	}
	return reserved.Amount
}
