package ruleset

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
)

// Ticket is an open reservation: the data to settle or renew it, on this node or another.
// Callers of the daemon hold its text form. It cannot be guessed, because it contains a random
// number of 128 bits. The client's name in it protects against mistakes, but it is not signed: a
// client with another client's ticket could change the name, so a ticket is a secret.
type Ticket struct {
	id      [16]byte // of the ticket
	client  string
	policy  string
	key     string // of the query, for overrides
	charges []ticketCharge
	first   [1]ticketCharge // where charges begin, as most tickets have one
}

type ticketCharge struct {
	group string // the name of its policy
	key   string
	cost  int64
	id    [16]byte

	// policy is that of the reservation. It is nil in a ticket that was parsed.
	policy *weir.Policy
}

// Errors of Settle and Renew.
var (
	// ErrTicket means that a text is not a ticket, or belongs to another client.
	ErrTicket = errors.New("ruleset: this is no reservation of this client")

	// ErrGone means that the ticket's policy is unknown since the last start. Its units stay
	// held until they expire.
	ErrGone = errors.New("ruleset: the reservation's policy does not exist any more")
)

// Reserve charges a query if it fits the rule, and holds the units for ttl, which may be 0 for
// weir.DefaultTTL. A reservation that is not settled by then counts as fully used. The ticket is
// nil if the query was refused. With Query.MaxWait, ttl starts at the end of the wait.
func (n *Engine) Reserve(ctx context.Context, r *Rule, q *Query, ttl time.Duration) (Verdict, *Ticket, error) {
	if len(q.Client) > weir.MaxKeyBytes {
		return Verdict{}, nil, &InputError{"client", fmt.Sprintf("has %d bytes: at most %d fit", len(q.Client), weir.MaxKeyBytes)}
	}
	e, err := newEvaluation(r.variant(q), q)
	if err != nil {
		return Verdict{}, nil, err
	}
	defer e.free()
	t := &Ticket{client: q.Client, policy: r.policy.Name, key: q.Key}
	t.charges = t.first[:0]
	_, _ = rand.Read(t.id[:]) // it never fails
	if !n.reserved.hold(q, t.id, ttl) {
		return e.verdict(weir.Decision{Reason: weir.QueueFull, RetryAfter: time.Second}), nil, nil // the client has used its share
	}
	out, err := n.reserve(ctx, e, t, ttl)
	if err != nil || !out.Allowed {
		n.reserved.release(t.id)
		return out, nil, err
	}
	if out.Waited > 0 {
		n.reserved.renew(t.id, ttl)
	}
	return out, t, nil
}

// reserve makes the charges of a ticket.
func (n *Engine) reserve(ctx context.Context, e *evaluation, t *Ticket, ttl time.Duration) (Verdict, error) {
	out := e.verdict(admitted)
	if e.enforced > 0 {
		b := e.reserve(0, e.enforced, ttl)
		var err error
		if e.query.MaxWait != 0 {
			out, err = n.wait(ctx, e, b)
		} else {
			out, err = e.carryOut(ctx, n.limiter, b)
		}
		if err != nil || !out.Allowed {
			return out, err
		}
		t.add(b)
	}
	if e.enforced < len(e.groups) {
		b := e.reserve(e.enforced, len(e.groups), ttl)
		if e.shadowPart(ctx, n.limiter, b, &out) {
			t.add(b)
		}
	}
	return out, nil
}

func (e *evaluation) reserve(from, to int, ttl time.Duration) *weir.Batch {
	b := e.part(weir.ReserveAll, from, to)
	b.TTL = ttl
	return b
}

func (t *Ticket) add(b *weir.Batch) {
	for i, c := range b.Charges {
		t.charges = append(t.charges, ticketCharge{group: c.Policy.Name(), key: c.Key, cost: c.Cost, id: b.Receipts[i].ID, policy: c.Policy})
	}
}

// ID returns the random number that identifies the ticket.
func (t *Ticket) ID() [16]byte { return t.id }

// Policy returns the name of the policy that was charged.
func (t *Ticket) Policy() string { return t.policy }

// Used is how much of a reservation was used, in requests and in other units. A unit that is not
// listed was used as reserved.
type Used struct {
	All      bool // as reserved; Cost and Costs are ignored
	None     bool // nothing at all
	Cost     int64
	Costs    []Cost
	HaveCost bool // Cost was given
}

// Settle ends a reservation: unused units are refunded exactly, and units beyond the reservation
// are debited. To settle again changes nothing and, on this node and for a while, returns the
// first result.
func (n *Engine) Settle(ctx context.Context, t *Ticket, used Used) (weir.Settled, error) {
	if r := n.Rules().Rule(t.policy); r != nil {
		plain := used.HaveCost && (used.Cost != 0 || r.plainUnit() != "")
		if err := r.checkCosts("used", plain, used.Costs); err != nil {
			return weir.Settled{}, err
		}
	}
	w, err := n.ticketBatch(weir.Settle, t)
	if err != nil {
		return weir.Settled{}, err
	}
	defer w.free()
	b := &w.batch
	for i := range b.Charges {
		if b.Charges[i].Cost, err = used.of(&w.policies[i], b.Charges[i].Cost); err != nil {
			return weir.Settled{}, err
		}
	}
	return n.settled.once(t.id, func() (out weir.Settled, err error) {
		if len(b.Charges) > 0 {
			err = n.limiter.Do(ctx, b)
		}
		if err != nil {
			return out, err
		}
		n.reserved.release(t.id)
		for _, s := range b.Settled {
			out.Refunded += s.Refunded
			out.Overrun += s.Overrun
			out.Late = out.Late || s.Late
		}
		return out, nil
	})
}

// of returns how much of a policy's charge was used.
func (u Used) of(p *applied, reserved int64) (int64, error) {
	switch {
	case u.None:
		return 0, nil
	case u.All:
		return reserved, nil
	case p.plain && u.HaveCost:
		return u.Cost, storeapi.CheckCost(u.Cost)
	}
	for _, c := range u.Costs {
		if c.Unit == p.unit {
			return c.Amount, storeapi.CheckCost(c.Amount)
		}
	}
	return reserved, nil
}

// Renew moves a reservation's expiry to ttl from now. It returns false if the reservation
// is over.
func (n *Engine) Renew(ctx context.Context, t *Ticket, ttl time.Duration) (bool, error) {
	w, err := n.ticketBatch(weir.Renew, t)
	if err != nil {
		return false, err
	}
	defer w.free()
	b := &w.batch
	if _, over := n.settled.find(t.id); over || len(b.Charges) == 0 {
		return !over, nil
	}
	b.TTL = ttl
	if err := n.limiter.Do(ctx, b); err != nil {
		return false, err
	}
	if b.Allowed() {
		n.reserved.renew(t.id, ttl)
	}
	return b.Allowed(), nil
}

// ticketWork is the pooled memory of a Settle or a Renew.
type ticketWork struct {
	batch    weir.Batch
	policies []applied // of the charges
}

var ticketWorks = sync.Pool{New: func() any { return &ticketWork{} }}

func (w *ticketWork) free() {
	b := &w.batch
	clear(b.Charges) // for the garbage collector, like the next one
	clear(w.policies)
	w.batch = weir.Batch{Charges: b.Charges[:0], Receipts: b.Receipts[:0], Decisions: b.Decisions[:0], Settled: b.Settled[:0]}
	w.policies = w.policies[:0]
	ticketWorks.Put(w)
}

// ticketBatch makes a batch of a ticket's charges, also of those whose group was removed from the
// rules since the start: their units are still held. It returns ErrGone if it knows none of them.
func (n *Engine) ticketBatch(op weir.Op, t *Ticket) (*ticketWork, error) {
	var v *Variant
	if r := n.Rules().Rule(t.policy); r != nil {
		v = r.variant(&Query{Key: t.key})
	}
	w := ticketWorks.Get().(*ticketWork)
	b := &w.batch
	b.Op = op
	for i := range t.charges {
		c := &t.charges[i]
		known, ok := n.applied.Load(c.group)
		if !ok {
			continue
		}
		p := *known.(*applied)
		p.policy = c.inForce(p.policy, v)
		w.policies = append(w.policies, p)
		b.Charges = append(b.Charges, weir.Charge{Policy: p.policy, Key: c.key, Cost: c.cost})
		b.Receipts = append(b.Receipts, weir.Receipt{ID: c.id, Units: c.cost})
	}
	if len(w.policies) == 0 && len(t.charges) > 0 {
		w.free()
		return nil, ErrGone
	}
	return w, nil
}

// inForce returns the policy to settle a charge with. That is the one of the reservation if it is
// an override, a plan or scaled, and otherwise base, which Set may have changed since. If the ticket
// was parsed, it is that of v, the variant that the ticket's key has now.
func (c *ticketCharge) inForce(base *weir.Policy, v *Variant) *weir.Policy {
	if c.policy != nil && c.policy.Compiled().Override {
		return c.policy
	}
	if g := v.group(c.group); c.policy == nil && g != nil {
		return g.policy
	}
	return base
}

// ticketVersion is the first byte of a ticket, the version of the format.
const ticketVersion = 1

// String returns the ticket as text: letters, digits, - and _.
func (t *Ticket) String() string {
	b := append([]byte{ticketVersion}, t.id[:]...)
	b = appendText(appendText(appendText(b, t.client), t.policy), t.key)
	for _, c := range t.charges {
		b = appendText(appendText(b, c.group), c.key)
		b = binary.AppendUvarint(b, uint64(c.cost))
		b = append(b, c.id[:]...)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// MaxTicket is the greatest length of a ticket's text.
const MaxTicket = 16 << 10

// ParseTicket is the inverse of String, for the client that holds the ticket. Its error
// wraps ErrTicket.
func ParseTicket(text, client string) (*Ticket, error) {
	if len(text) > MaxTicket {
		return nil, fmt.Errorf("%w: it is too long", ErrTicket)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 1 || b[0] != ticketVersion || strings.ContainsAny(text, "\r\n") { // base64 ignores line breaks
		return nil, fmt.Errorf("%w: it is not what reserve returned", ErrTicket)
	}
	r := reader{rest: b[1:]}
	t := &Ticket{id: r.id(), client: r.text(), policy: r.text(), key: r.text()}
	for len(r.rest) > 0 && !r.bad {
		t.charges = append(t.charges, ticketCharge{group: r.text(), key: r.text(), cost: r.number(), id: r.id()})
	}
	switch {
	case r.bad:
		return nil, fmt.Errorf("%w: it is not what reserve returned", ErrTicket)
	case t.client != client:
		return nil, ErrTicket
	}
	return t, nil
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// reader decodes a ticket. After missing or invalid data, bad is set and all results are zero.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) take(n uint64) []byte {
	if r.bad || n > uint64(len(r.rest)) {
		r.bad = true
		return nil
	}
	part := r.rest[:n]
	r.rest = r.rest[n:]
	return part
}

func (r *reader) varint() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.bad = true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) number() int64 {
	n := r.varint()
	if n > uint64(weir.MaxCost) {
		r.bad = true
		return 0
	}
	return int64(n)
}

func (r *reader) text() string {
	text := r.take(r.varint())
	if len(text) > weir.MaxKeyBytes {
		r.bad = true
	}
	return string(text)
}

func (r *reader) id() (id [16]byte) {
	copy(id[:], r.take(16))
	return id
}
