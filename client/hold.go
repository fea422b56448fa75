package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/internal/compiled"
)

// holds maps the ids of receipts to the daemon's ids of reservations, which are longer.
type holds struct {
	mu   sync.Mutex // guards the fields below
	open map[[16]byte]hold
	next int // the size at which expired reservations are removed
}

// hold is a reservation.
type hold struct {
	id    string    // of the daemon
	until time.Time // when it has certainly expired
}

// overdue is how long a reservation is kept after its expiry, so that Settle can report that it is
// late.
const overdue = time.Minute

// room reports whether another reservation may be added.
func (h *holds) room() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.open) < max(h.next, 1024) {
		return true
	}
	now := time.Now()
	for id, hold := range h.open {
		if now.After(hold.until) {
			delete(h.open, id)
		}
	}
	h.next = min(2*len(h.open), MaxHolds)
	return len(h.open) < MaxHolds
}

func (h *holds) put(id [16]byte, hold hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open[id] = hold
}

func (h *holds) find(id [16]byte) (hold, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	found, ok := h.open[id]
	return found, ok
}

func (h *holds) drop(id [16]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.open, id)
}

// reserve reserves all charges of a batch or none. If one is refused, it peeks at those after it, so
// that the batch has a decision for each.
func (c *Client) reserve(ctx context.Context, b *weir.Batch) error {
	if err := checkTTL(b); err != nil {
		return err
	}
	for i := range b.Charges {
		if err := c.reserveOne(ctx, b, i); err != nil {
			c.cancelAll(ctx, b.Receipts[:i])
			return err
		}
		if !b.Decisions[i].Allowed {
			c.cancelAll(ctx, b.Receipts[:i])
			for j := range i {
				b.Decisions[j].Allowed, b.Decisions[j].Reason = false, weir.NotCharged
			}
			clear(b.Receipts)
			return c.peekRest(ctx, b, i+1)
		}
	}
	return nil
}

func (c *Client) reserveOne(ctx context.Context, b *weir.Batch, i int) error {
	if !c.holds.room() {
		b.Decisions[i] = weir.Decision{Reason: weir.QueueFull, RetryAfter: weir.Never}
		return nil
	}
	charge := &b.Charges[i]
	req := &weirv1.ReserveRequest{Policy: charge.Policy.Name(), Class: charge.Policy.ClassName(), Key: charge.Key, Cost: proto.Int64(charge.Cost), TtlMs: millis(b.TTL)}
	a, err := exchange(ctx, c, c.timeout, c.service.Reserve, req)
	if err != nil {
		return err
	}
	b.Decisions[i] = wireDecision{
		allowed: a.GetAllowed(), limit: a.GetLimit(), remaining: a.GetRemaining(), retry: a.GetRetryAfterMs(), reset: a.GetResetAfterMs(),
		by: a.GetLimitedBy(), reason: a.GetReason(),
	}.decision(charge.Policy)
	if !a.GetAllowed() {
		return nil
	}
	r := &b.Receipts[i]
	_, _ = rand.Read(r.ID[:]) // it never fails
	r.Units, r.Expiry = charge.Cost, expiry(a.GetExpiresInMs())
	c.holds.put(r.ID, hold{id: a.GetId(), until: over(a.GetExpiresInMs())})
	return nil
}

func expiry(ms int64) weir.Instant { return weir.Now().Add(lasting(ms)) }

func over(ms int64) time.Time { return time.Now().Add(lasting(ms) + overdue) }

// cancelAll cancels the reservations of a batch that failed. It does not depend on the caller's
// context, and stops when the daemon does not answer, so that it waits for at most one timeout; what
// is not canceled expires.
func (c *Client) cancelAll(ctx context.Context, receipts []weir.Receipt) {
	ctx = context.WithoutCancel(ctx)
	answers := true
	for _, r := range receipts {
		h, ok := c.holds.find(r.ID)
		if c.holds.drop(r.ID); ok && answers {
			_, err := exchange(ctx, c, c.timeout, c.service.Cancel, &weirv1.CancelRequest{Id: h.id})
			answers = err == nil || errors.Is(err, weir.ErrInvalid)
		}
	}
}

// peekRest peeks at the charges from index from on, of a batch that was refused.
func (c *Client) peekRest(ctx context.Context, b *weir.Batch, from int) error {
	if from == len(b.Charges) {
		return nil
	}
	rest := weir.Batch{Op: weir.PeekEach, Charges: b.Charges[from:]}
	if err := c.Do(ctx, &rest); err != nil {
		return err
	}
	for i, d := range rest.Decisions {
		if d.Allowed {
			d.Allowed, d.Reason = false, weir.NotCharged
		}
		b.Decisions[from+i] = d
	}
	return nil
}

// settle settles reservations. After an error it may be called again: the daemon returns the same
// result for those that were settled, so they are removed only together.
func (c *Client) settle(ctx context.Context, b *weir.Batch) error {
	err := c.eachHold(b, func(i int, h hold) error {
		a, err := exchange(ctx, c, c.timeout, c.service.Commit, &weirv1.CommitRequest{Id: h.id, Used: proto.Int64(b.Charges[i].Cost)})
		b.Settled[i] = weir.Settled{Refunded: a.GetRefunded(), Overrun: a.GetOverrun(), Late: a.GetLate()}
		return err
	})
	if err != nil {
		return err
	}
	for _, r := range b.Receipts {
		c.holds.drop(r.ID)
	}
	return nil
}

// renew extends reservations.
func (c *Client) renew(ctx context.Context, b *weir.Batch) error {
	if err := checkTTL(b); err != nil {
		return err
	}
	return c.eachHold(b, func(i int, h hold) error {
		a, err := exchange(ctx, c, c.timeout, c.service.Renew, &weirv1.RenewRequest{Id: h.id, TtlMs: millis(b.TTL)})
		b.Decisions[i] = weir.Decision{Reason: weir.TooLate, RetryAfter: weir.Never}
		if a.GetRenewed() {
			b.Decisions[i] = weir.Decision{Allowed: true, Reason: weir.Admitted}
			h.until = over(a.GetExpiresInMs())
			c.holds.put(b.Receipts[i].ID, h)
			b.Receipts[i].Expiry = expiry(a.GetExpiresInMs())
		}
		return err
	})
}

// checkTTL returns an error for a TTL that the daemon refuses.
func checkTTL(b *weir.Batch) error {
	if b.TTL == weir.NoExpiry {
		return compiled.Invalid("ttl NoExpiry: a daemon holds for an hour at most, from the last time that it was renewed")
	}
	for i := range b.Charges {
		if _, err := b.Charges[i].Policy.Compiled().Expiry(int64(weir.Now()), b.TTL); err != nil {
			return err
		}
	}
	return nil
}

// eachHold calls a function for each reservation of a batch, several at once, and returns the first
// error. An unknown reservation was settled or has expired long ago: it is Late, and not renewed.
func (c *Client) eachHold(b *weir.Batch, do func(i int, h hold) error) error {
	var (
		errs  = make([]error, len(b.Receipts))
		group sync.WaitGroup
		turns = make(chan struct{}, c.combiner.most)
	)
	for i, r := range b.Receipts {
		h, ok := c.holds.find(r.ID)
		if !ok {
			b.Settled[i].Late = true
			continue
		}
		turns <- struct{}{}
		group.Go(func() {
			defer func() { <-turns }()
			errs[i] = do(i, h)
		})
	}
	group.Wait()
	return cmp.Or(errs...)
}
