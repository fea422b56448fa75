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

// sharesBySlot groups the places of a call's charges by slot, in ascending order.
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

// maxRounds bounds the rounds that a batch is given time for, so that it ends while its caller
// still waits.
const maxRounds = 4

// Rounds returns how many times one after the other Do has to ask for b, from 1 to 4: each
// round may take Config.Timeout. It is 1 unless the server is a cluster and b is a TakeAll or a
// ReserveAll on several slots, which are asked in turn; four are what more slots than that get
// time for. Redis is not asked.
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

// rowsOf returns how the keys of a policy's rows begin.
func (s *Store) rowsOf(p *weir.Policy) string {
	if n := s.bound(p, weir.Now()); n != nil {
		return n.rows // which is the same, and spares making it
	}
	return s.rowPrefix(p.Name())
}

// A roundTimer says when the rounds of a call end that began at one moment.
type roundTimer struct {
	timeout time.Duration
	end     weir.Instant // of all rounds
}

func newRoundTimer(began weir.Instant, rounds int, timeout time.Duration) roundTimer {
	return roundTimer{timeout, began.Add(time.Duration(min(rounds, maxRounds)) * timeout)}
}

// until returns when a round ends that begins now.
func (r roundTimer) until(now weir.Instant) weir.Instant { return min(now.Add(r.timeout), r.end) }

// spreadTTL is for how long a TakeAll over several slots holds what it has got while
// it asks for the rest. Should this process die meanwhile, that counts as taken.
const spreadTTL = 10 * time.Second

// spread takes all charges of a call or none, where no script can see them together:
// slot after slot it takes what it needs as a hold, which keeps the room
// occupied, so that giving it back is exact. If all went well, a TakeAll turns its
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
			sub.op = opPeek // nothing more is taken, but each is told how it stands
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

// debitAndSpread is spread for a call that charges something before it decides. An error
// after that leaves it charged, so that what the call did is unknown.
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
	whole.until = whole.until.Add(timeout) // that was a round of its own
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

// settleAll ends holds of this process: used is 1 to keep them as charged, 0 to give
// them back. Nobody waits for it, and should it fail, they expire, which counts as
// used.
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

// sendAlone sends a call that nobody waits for.
func (s *Store) sendAlone(c *call) {
	r := newRequest()
	r.call = c
	r.begin(weir.Instant(algo.Never))            // nobody waits, so nobody leaves
	_ = s.queueOf(c.charges[0].key).add(r, true) // once closed it cannot be sent, and the holds expire
}
