package redisstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
	"unsafe"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/redisconn"
)

// sharesBySlot groups the indices of a call's charges by slot, in ascending order.
func sharesBySlot(c *call, slot func(string) uint16) [][]int {
	places := make([]int, len(c.charges))
	slots := make([]uint16, len(c.charges))
	for i := range c.charges {
		places[i], slots[i] = i, slot(c.charges[i].key)
	}
	slices.SortStableFunc(places, func(i, j int) int { return cmp.Compare(slots[i], slots[j]) })
	var shares [][]int
	for k, i := range places {
		if k == 0 || slots[i] != slots[places[k-1]] {
			shares = append(shares, nil)
		}
		shares[len(shares)-1] = append(shares[len(shares)-1], i)
	}
	return shares
}

// maxRounds bounds the time of a batch, in rounds, so that it ends while its caller
// still waits.
const maxRounds = 4

// Rounds returns the number of sequential rounds that Do has time for with b, from 1 to 4: each
// round may take Config.Timeout. It is 1 unless the server is a cluster and b is a TakeAll or a
// ReserveAll on several slots, which are processed one after the other; more than four slots have
// the time of four. Rounds sends no command.
func (s *Store) Rounds(b *weir.Batch) int {
	if !s.cluster || b.Op != weir.TakeAll && b.Op != weir.ReserveAll {
		return 1
	}
	var buffer [128]byte
	var slots [maxRounds]uint16
	n := 0
	for i := range b.Charges {
		c := &b.Charges[i]
		key := appendRowKey(buffer[:0], s.rowsOf(c.Policy), c.Key)
		slot := redisconn.Slot(unsafe.String(unsafe.SliceData(key), len(key)))
		if slices.Contains(slots[:n], slot) {
			continue
		}
		slots[n] = slot
		if n++; n == maxRounds {
			break
		}
	}
	if n > 1 && b.Used != nil {
		n++
	}
	return min(max(1, n), maxRounds)
}

// rowsOf returns the prefix of the keys of a policy's rows.
func (s *Store) rowsOf(p *weir.Policy) string {
	if n := s.bound(p, weir.Now()); n != nil {
		return n.rows // the same string, without an allocation
	}
	return s.rowPrefix(p.Name())
}

// A roundTimer computes the deadlines of a call's rounds.
type roundTimer struct {
	timeout time.Duration
	end     weir.Instant // of all rounds
}

func newRoundTimer(began weir.Instant, rounds int, timeout time.Duration) roundTimer {
	return roundTimer{timeout, began.Add(time.Duration(min(rounds, maxRounds)) * timeout)}
}

// until returns the deadline of a round that begins now.
func (r roundTimer) until(now weir.Instant) weir.Instant { return min(now.Add(r.timeout), r.end) }

// spreadTTL is the expiry of the holds of a TakeAll over several slots. If the process
// dies before it settles them, the units count as taken.
const spreadTTL = 10 * time.Second

// spread takes all charges of a call or none, where they are on several slots: it makes a
// hold on one slot after the other. A hold keeps its units occupied, so that releasing
// it is exact. If all slots admit, a TakeAll turns its
// holds into charges. Each slot may take timeout.
func (s *Store) spread(ctx context.Context, whole *call, shares [][]int, timeout time.Duration) error {
	timer := newRoundTimer(whole.until.Add(-timeout), len(shares), timeout)
	holds := *whole
	if whole.op == opAll {
		holds.op, holds.ttl = opHold, spreadTTL.Microseconds()
		holds.charges = withIDs(whole.charges)
	}
	var held []*call
	refused := false
	for _, share := range shares {
		sub := holds.subcall(share)
		sub.until = timer.until(weir.Now())
		if refused {
			sub.op = opPeek // take nothing more, but return a Decision for each charge
		}
		if err := s.send(ctx, sub); err != nil {
			s.settleAll(held, 0)
			return err
		}
		whole.join(sub, share)
		if sub.op == opHold && sub.allowed() {
			held = append(held, sub)
		}
		refused = refused || !sub.allowed()
	}
	if refused {
		s.settleAll(held, 0)
		return nil
	}
	if whole.op == opAll {
		s.settleAll(held, 1)
	}
	return nil
}

// debitAndSpread is spread for a call that debits units before the decision. An error
// after that leaves them debited, so that the outcome of the call is unknown.
func (s *Store) debitAndSpread(ctx context.Context, whole *call, shares [][]int, timeout time.Duration) error {
	debit := *whole
	debit.op, debit.charges = opDebit, slices.Clone(whole.charges)
	for i := range debit.charges {
		debit.charges[i].cost, debit.charges[i].used = whole.charges[i].used, 0
		whole.charges[i].used = 0
	}
	if err := s.scatter(ctx, &debit, shares); err != nil {
		return err
	}
	whole.until = whole.until.Add(timeout) // the debit was a round of its own
	err := s.spread(ctx, whole, shares, timeout)
	if err != nil && !errors.Is(err, weir.ErrUnknown) {
		s.counts.unknown.Add(1)
		return unknownOutcome(err)
	}
	return err
}

func withIDs(charges []charge) []charge {
	charges = slices.Clone(charges)
	for i := range charges {
		charges[i].id = newID()
	}
	return charges
}

// settleAll settles holds of this process in the background: used is 1 to keep them as
// charges, 0 to release them. If that fails, they expire, which counts as used.
func (s *Store) settleAll(held []*call, used int64) {
	for _, h := range held {
		c := h.subcall(everyPlace(h))
		c.op = opSettle
		for i := range c.charges {
			c.charges[i].cost *= used
		}
		s.sendAlone(c)
	}
}

func everyPlace(c *call) []int {
	places := make([]int, len(c.charges))
	for i := range places {
		places[i] = i
	}
	return places
}

// sendAlone sends a call in the background.
func (s *Store) sendAlone(c *call) {
	r := newRequest()
	r.call = c
	r.begin(weir.Instant(algo.Never))            // no caller waits, so it has no deadline
	_ = s.queueOf(c.charges[0].key).add(r, true) // fails only after Close; then the holds expire
}
