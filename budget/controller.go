package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// Controller charges an account for one class of work. All methods may be called by any number of
// goroutines.
//
// Those that wait do so in the order in which they came, for each class on its own. They sleep for the
// time that the limits compute. Only after errors of the store they try again after a back-off.
type Controller struct {
	account *Account
	class   string

	backoff *Backoff // for errors of the store
}

// Controller returns the controller for a class of work. "" is the class with the least guaranteed
// share, or no class if the account has none.
func (a *Account) Controller(class string) (*Controller, error) {
	if class != "" && !slices.Contains(a.Classes(), class) {
		return nil, fmt.Errorf("budget: account %q has no class %q; it has %q", a.name, class, a.Classes())
	}
	return &Controller{account: a, class: class, backoff: &Backoff{}}, nil
}

// Account returns the controller's account.
func (c *Controller) Account() *Account { return c.account }

// Class returns the controller's class.
func (c *Controller) Class() string {
	if c.class != "" {
		return c.class
	}
	if r, err := c.account.rule(); err == nil {
		return r.DefaultClass()
	}
	return ""
}

// ErrTooCostly is wrapped by errors about a cost that can never be admitted: it exceeds what a limit
// has at once for the class. Waiting cannot help.
var ErrTooCostly = errors.New("budget: the cost exceeds what the account ever has at once")

// Try charges a cost if the budget has room for it, and never waits. A refusal is a Decision, which
// says when there is room.
func (c *Controller) Try(ctx context.Context, cost Cost) (weir.Decision, error) {
	r, q, err := c.account.query(c.class, cost)
	if err != nil {
		return weir.Decision{}, err
	}
	v, err := c.account.engine.Check(ctx, r, q)
	if err == nil {
		c.account.Charged(ctx, q, &v)
	}
	return v.Decision, err
}

// WaitForBudget charges a cost as soon as the budget has room for it. Its error is nil only if it was
// charged. It fails at once if the context's deadline comes before there is room (a
// *weir.DeniedError with weir.TooLate) or if the cost can never be admitted (ErrTooCostly). While the
// store is unavailable and OnError does not admit the cost, it waits. If the context ends, the error
// wraps the context's, and nothing was charged.
func (c *Controller) WaitForBudget(ctx context.Context, cost Cost) error {
	return c.wait(ctx, cost, func(rule *ruleset.Rule, q *ruleset.Query) (ruleset.Verdict, error) {
		v, err := c.account.engine.Check(ctx, rule, q)
		if err == nil {
			c.account.Charged(ctx, q, &v)
		}
		return v, err
	})
}

// Reserve charges a cost as soon as the budget has room for it, and holds it for work whose cost is
// known only afterwards. The units count as used until Settle, or for good after ttl (0 means a
// minute; at most an hour). It waits, and fails, as WaitForBudget does.
func (c *Controller) Reserve(ctx context.Context, ttl time.Duration, cost Cost) (r *Reservation, err error) {
	err = c.wait(ctx, cost, func(rule *ruleset.Rule, q *ruleset.Query) (v ruleset.Verdict, err error) {
		r, v, err = c.reserve(ctx, rule, q, ttl)
		return v, err
	})
	return r, err
}

// TryReserve is Reserve without waiting. If it is refused, the Reservation is nil.
func (c *Controller) TryReserve(ctx context.Context, ttl time.Duration, cost Cost) (*Reservation, weir.Decision, error) {
	rule, q, err := c.account.query(c.class, cost)
	if err != nil {
		return nil, weir.Decision{}, err
	}
	r, v, err := c.reserve(ctx, rule, q, ttl)
	return r, v.Decision, err
}

// reserve makes a reservation, nil if it is refused.
func (c *Controller) reserve(ctx context.Context, rule *ruleset.Rule, q *ruleset.Query, ttl time.Duration) (*Reservation, ruleset.Verdict, error) {
	v, ticket, err := c.account.engine.Reserve(ctx, rule, q, ttl)
	if err != nil {
		return nil, v, err
	}
	c.account.Held(ctx, q, &v, ticket, ttl)
	if ticket == nil {
		return nil, v, nil
	}
	return &Reservation{account: c.account, costs: q.Costs, ticket: ticket}, v, nil
}

// wait calls charge with a query that waits until it is admitted, and again after errors of the store
// that have charged nothing.
func (c *Controller) wait(ctx context.Context, cost Cost, charge func(*ruleset.Rule, *ruleset.Query) (ruleset.Verdict, error)) error {
	for {
		rule, q, err := c.account.query(c.class, cost)
		if err != nil {
			return err
		}
		q.MaxWait = ruleset.UntilDone
		v, err := charge(rule, q)
		switch {
		case err == nil && v.Reason == weir.StoreDown: // OnError does not let this process decide about this cost
			err = sleep(ctx, addJitter(v.RetryAfter, nil))
		case err == nil && v.Reason == weir.Exhausted && v.RetryAfter != weir.Never: // a cost of 0 waits in no line, but for the provider
			err = c.waitForProvider(ctx)
		case err == nil:
			c.backoff.Success()
			return c.refused(v)
		case ctx.Err() == nil && temporary(err):
			err = sleep(ctx, c.backoff.Failure())
		}
		if err != nil {
			return c.failed(ctx, err)
		}
	}
}

// temporary reports whether an error charged nothing and may be over soon.
func temporary(err error) bool {
	return (errors.Is(err, weir.ErrUnavailable) || errors.Is(err, weir.ErrBusy)) && !errors.Is(err, weir.ErrUnknown)
}

// waitForProvider waits for the end of a cooldown. Nobody wakes it if EndCooldown ends that, so it looks once a second.
func (c *Controller) waitForProvider(ctx context.Context) error {
	for d := c.account.Cooldown(); d > 0; d = c.account.Cooldown() {
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
			return &weir.DeniedError{Decision: weir.Decision{Reason: weir.TooLate, RetryAfter: d}}
		}
		if err := sleep(ctx, min(d, time.Second)); err != nil {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	pause := time.NewTimer(d)
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// failed returns the error of a charge that was not made. If the context has ended, it wraps its error.
func (c *Controller) failed(ctx context.Context, err error) error {
	if end := ctx.Err(); end != nil && !errors.Is(err, end) {
		return fmt.Errorf("budget: account %q, class %q: %w: %w", c.account.name, c.Class(), end, err)
	}
	return fmt.Errorf("budget: account %q, class %q: %w", c.account.name, c.Class(), err)
}

// refused returns the error of a refusal, or nil if the verdict is none.
func (c *Controller) refused(v ruleset.Verdict) error {
	err := v.Err()
	if err == nil {
		return nil
	}
	if v.Reason == weir.TooCostly {
		return fmt.Errorf("%w: account %q, class %q, limit %q admits at most %d: %w", ErrTooCostly, c.account.name, c.Class(), v.LimitedBy(), v.Decision.Limit, err)
	}
	return fmt.Errorf("budget: account %q, class %q, limit %q: %w", c.account.name, c.Class(), v.LimitedBy(), err)
}

// ShouldPause observes the utilisation and reports whether work that can wait should: it has reached
// the threshold Pause and has not fallen below Resume since. If it cannot be observed, the last
// observation counts.
func (c *Controller) ShouldPause(ctx context.Context) bool {
	c.account.observeNow(ctx, nil)
	return c.account.Level() >= Paused
}

// RecordFailure lets the account pause after the provider has refused a call as too many or has said
// that it is overloaded: 100 ms after the first, twice as long after each further one, up to
// 10 s. It returns the pause. Calls that fail during a pause were made before it and change nothing. Other
// errors have nothing to do with the budget and are not recorded.
func (c *Controller) RecordFailure() time.Duration {
	if d := c.account.Cooldown(); d > 0 {
		return d
	}
	d := c.account.refusals.Failure()
	c.account.Cool(d)
	return d
}

// overrun charges a cost that was spent already, whether there is room for it or not.
func (c *Controller) overrun(ctx context.Context, cost Cost) error {
	rule, q, err := c.account.query(c.class, cost)
	if err != nil {
		return err
	}
	if _, err := c.account.engine.DebitEach(ctx, []ruleset.Item{{Rule: rule, Query: *q}}); err != nil {
		return err
	}
	c.account.overran(q)
	return nil
}

// Quote is when a cost would be admitted.
type Quote struct {
	Account, Class string
	Allowed        bool          // it would be admitted now
	Never          bool          // it never would
	Wait           time.Duration // until it would be admitted if nothing else happens, see Controller.Quote; weir.Never with Never
	LimitedBy      string        // the limit that refuses it until then
}

// Quote returns when a cost would be admitted. It charges nothing. A WaitForBudget that begins now is admitted at
// that instant if nothing else happens until then: nobody else charges, settles or waits, and no pause or cooldown
// begins. Otherwise Wait says less:
//
//   - From the level Paused on it is the longest wait: how long it takes without borrowing. If the pause ends before,
//     the call may borrow and is admitted earlier. A cost that the class can only ever have by borrowing waits
//     for the end of the pause, and nothing says when that is: Wait is then a quarter of a second, after which
//     the next quote may say more.
//   - Behind callers of the class that wait already it includes what these wait for. It is exact
//     as long as all of that and the cost fit at once, and if they do not hold it for longer (Reserve). Otherwise it
//     is an estimate, and the call may be admitted earlier or later.
//   - Waiting callers of other classes are not included. They may borrow before what the call would borrow.
//   - Reserve may have to wait longer, since classes can hold less than they can use: see algo.Lending.
func (c *Controller) Quote(ctx context.Context, cost Cost) (Quote, error) {
	r, q, err := c.account.query(c.class, cost)
	if err != nil {
		return Quote{}, err
	}
	v, err := c.account.engine.Peek(ctx, r, q)
	if err != nil {
		return Quote{}, err
	}
	cool := c.account.Cooldown() // for a cost of 0, to which the engine says nothing
	return Quote{
		Account: c.account.name, Class: c.Class(), Allowed: v.Allowed && cool == 0, Never: !v.Allowed && v.RetryAfter == weir.Never,
		Wait: max(v.RetryAfter, cool), LimitedBy: v.LimitedBy(),
	}, nil
}

// QuoteBest returns the quote of the controller that would admit a cost first, and that controller;
// of several, the first one given. Those that cannot say, because their store is unavailable or the method is
// unknown to them, are left out, unless it is all of them.
func QuoteBest(ctx context.Context, cost Cost, controllers ...*Controller) (best *Controller, quote Quote, err error) {
	if len(controllers) == 0 {
		return nil, Quote{}, errors.New("budget: no controller to quote from")
	}
	var failed []error
	for _, c := range controllers {
		q, err := c.Quote(ctx, cost)
		switch {
		case err != nil:
			failed = append(failed, err)
		case best == nil || q.Wait < quote.Wait:
			best, quote = c, q
		}
	}
	if best == nil {
		return nil, Quote{}, errors.Join(failed...)
	}
	return best, quote, nil
}
