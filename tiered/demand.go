package tiered

import (
	"time"

	"github.com/weirlimit/weir"
)

// How leases are sized. A block lasts for about leaseSpan, so that the lease of a busy key is
// renewed ten times a second and a crash forfeits a tenth of a second's demand. It is at most
// burst / (carve × nodes), so that all nodes together hold at most a quarter of the
// burst, and at most half of a node's share of the remaining units. A block that is spent
// sooner is followed by one of up to growth times its size.
//
// Reserving and settling a lease costs the store as much as about fifty plain charges. So a
// key gets a block of leastBlock charges or more, and none if it would not spend that
// many before the lease expires. Near the limit, where the remaining units allow only blocks of
// less than half of that, the store is called for each charge. If the burst is small, blocks may
// be as small as leastUse charges: that saves callers round trips, but saves the store no work.
const (
	leaseSpan  = 100 * time.Millisecond
	carve      = 4
	leastUse   = 4
	leastBlock = 64
	growth     = 8
)

// blockSize returns how many units to lease, or 0 if a lease is not worthwhile. perSecond is
// the demand, last the size of the last block, carved the maximum with respect to the burst,
// and room the maximum with respect to the remaining units.
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

// demand is the measured demand for a key.
type demand struct {
	since weir.Instant // when counting of store calls without a lease began
	units int64        // charged since then
	calls int

	block     int64 // the size of the last lease
	perSecond float64
	ended     weir.Instant // when the last lease was spent

	leasing bool         // a lease is being requested
	exactly weir.Instant // no lease is requested before that, because the last one did not fit
}

// observe counts a charge that calls the store.
func (m *demand) observe(cost int64, now weir.Instant, ttl time.Duration) {
	if now.Sub(m.since) > ttl || m.since == 0 {
		m.since, m.units, m.calls = now, 0, 0
	}
	m.units += max(1, cost)
	m.calls++
}

// rate returns the demand per second and, if a lease has just ended, its size. known is false
// if there were too few calls to tell.
func (m *demand) rate(now weir.Instant) (perSecond float64, block int64, known bool) {
	if now.Sub(m.ended) < leaseSpan && m.block > 0 {
		return m.perSecond, m.block, true
	}
	return float64(m.units) / max(1e-9, now.Sub(m.since).Seconds()), 0, m.calls >= leastCalls
}

// worthLeasing returns how many units to lease for a key whose lease, if any, does not
// suffice; 0 means none. If it returns more, the caller must request the lease.
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

// leastCalls is the number of store calls for a key after which its demand is known.
const leastCalls = 8

// blockLocked returns how many units to lease, given the burst, the remaining units and the
// number of nodes. It sets leasing if there are any. It requires e.mu.
func (t *Limiter) blockLocked(e *entry, pl *plan, perSecond float64, last, cost int64) int64 {
	nodes, st := int64(t.nodes()), e.state
	back := int64(float64(t.now().Sub(st.at)) * pl.perNano[st.by])
	n := blockSize(perSecond, last, cost, pl.capacity/(carve*nodes), (st.remaining+back)/(2*nodes))
	e.demand.leasing = n > 0
	return n
}
