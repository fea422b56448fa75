package tiered

import (
	"time"

	"github.com/weirlimit/weir"
)

// How leases are sized. A block lasts for about leaseSpan, so that a busy key renews
// ten times a second and a crash strands a tenth of a second's worth. It is no more
// than burst / (carve × nodes), so that all nodes together hold at most a quarter of
// the burst, and never more than half of a node's share of what remains. A block that
// is spent sooner is followed by one of up to growth times its size.
//
// For the store, to lend and to settle is as much work as some fifty plain charges. So
// a key gets a block of leastBlock charges or more, and none if it would not spend that
// much before it expires. Near the limit, where what remains allows only blocks of less
// than half of that, the store is asked for each charge. A small burst may be lent in
// blocks of leastUse charges: that spares callers the way to the store, not the store.
const (
	leaseSpan  = 100 * time.Millisecond
	carve      = 4
	leastUse   = 4
	leastBlock = 64
	growth     = 8
)

// blockSize returns how many units to lease, or 0 if it is not worth it: perSecond is
// the demand, last the size of the last block, carved what may be held of the burst, and
// room what may be held of what remains.
func blockSize(perSecond float64, last, cost, carved, room int64) int64 {
	cost = max(1, cost)
	least := leastBlock * cost
	n := max(least, int64(min(perSecond*leaseSpan.Seconds(), float64(weir.MaxCost))))
	n = min(n, max(least, growth*last), carved, weir.MaxCost)
	if room < n {
		n = room
		if n < least/2 {
			return 0
		}
	}
	if n < leastUse*cost {
		return 0
	}
	return n
}

// demand is how much of a key is asked for.
type demand struct {
	since weir.Instant // when the store was first asked lately, while there was no lease
	units int64        // that it was asked for since
	calls int

	block     int64 // the size of the last lease
	perSecond float64
	ended     weir.Instant // when it was spent

	leasing bool         // somebody is getting a lease
	exactly weir.Instant // before that it is not tried: the last one did not fit
}

// asked notes a charge that is asked of the store.
func (m *demand) observe(cost int64, now weir.Instant, ttl time.Duration) {
	if now.Sub(m.since) > ttl || m.since == 0 {
		m.since, m.units, m.calls = now, 0, 0
	}
	m.units += max(1, cost)
	m.calls++
}

// rate returns the demand per second and, if there was a lease just now, its size. It
// returns false if too little is known.
func (m *demand) rate(now weir.Instant) (perSecond float64, block int64, known bool) {
	if now.Sub(m.ended) < leaseSpan && m.block > 0 {
		return m.perSecond, m.block, true
	}
	return float64(m.units) / max(1e-9, now.Sub(m.since).Seconds()), 0, m.calls >= leastCalls
}

// worthLeasing returns how many units to lease for a key that has no lease which
// suffices; 0 means none. If it returns more, the caller is the one who leases.
func (t *Limiter) worthLeasing(c *call) int64 {
	now, e := c.now, c.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	m := &e.demand
	m.observe(c.cost, now, t.config.LeaseTTL)
	c.busy = m.calls >= leastCalls-1 || m.block > 0
	if m.leasing || now < m.exactly || e.state.limits != c.plan.limits || t.closed.Load() {
		return 0
	}
	perSecond, block, known := m.rate(now)
	if !known || perSecond*t.leaseLasts().Seconds() < leastBlock*float64(max(1, c.cost)) {
		return 0
	}
	return t.blockLocked(e, c.plan, perSecond, block, c.cost)
}

// leastCalls is how many charges of a key must have been asked of the store for its
// demand to be known.
const leastCalls = 8

// blockLocked returns how many units to lease, as blockSize does, where this node may hold a
// part of the burst and a part of what remains. If there are any, leasing is set.
func (t *Limiter) blockLocked(e *entry, pl *plan, perSecond float64, last, cost int64) int64 {
	nodes, st := int64(t.nodes()), e.state
	back := int64(float64(t.now().Sub(st.at)) * pl.perNano[st.by])
	n := blockSize(perSecond, last, cost, pl.capacity/(carve*nodes), (st.remaining+back)/(2*nodes))
	e.demand.leasing = n > 0
	return n
}
