package upstream

import "time"

// One call proves little about an endpoint: a provider may deny or fail a certain method only, and whoever calls that could
// take the endpoint from everybody else. So where probes have succeeded a short time ago, they vouch for the endpoint: what
// goes wrong has another probe sent at once, and the endpoint stays in use unless that goes wrong, too. Without probes
// several calls in a row decide.

// vouches reports whether the success of the last probe still counts.
func (p *Pool) vouches(m *memory, now time.Time) bool {
	return now.UnixNano()-m.vouched.Load() < int64(vouchedFor+p.set.Load().config.Probe.Every)
}

// askAgain has a probe sent at once, or at the next look if one has just succeeded: probes are charged, too, so that whoever
// makes calls go wrong must not cause any number of them.
func (p *Pool) askAgain(m *memory, now time.Time) {
	m.asked.Store(0)
	if now.UnixNano()-m.vouched.Load() >= int64(lookEvery) {
		p.probeNow()
	}
}

// failuresToClose is how many failures in a row put an endpoint out of use, or have a probe sent.
const failuresToClose = 3

// The back-off of endpoints that fail: a recovered one is tried again within a second, a tenth of jitter and the time of a
// call included.
var ofFailures = delays{250 * time.Millisecond, 800 * time.Millisecond}

// answers notes that the endpoint has answered.
func (m *memory) answers() {
	m.failures.Store(0)
	m.suspected.Store(0)
}

// failing closes the gate of an endpoint that fails: if it has failed several times in a row, or is half open. While probes
// vouch for it, the failure of one decides, or a failure after suspectFor without its answer. Nobody vouches for one that is
// half open and has answered nothing since it was closed.
func (p *Pool) failing(l *lease, out result, now time.Time) (closed bool) {
	m, half := l.endpoint.memory, l.passes[0].half
	if l.probe {
		m.probeFailed.Store(true)
	}
	n := m.failures.Add(1)
	vouched := !m.probeFailed.Load() && p.vouches(m, now) && !(half && n > failuresToClose)
	if n < failuresToClose && !half || vouched && p.suspect(m, now) {
		m.gate.leave(l.passes[0])
		return false
	}
	m.suspected.Store(0)
	m.recheckChain()
	_, closed = m.gate.close(now, l.passes[0], 0, ofFailures, out.reason)
	return closed
}

// suspectFor is how long an endpoint stays in use that fails while a probe is on its way, if that takes no longer than usual.
const suspectFor = 500 * time.Millisecond

// suspect has a probe sent, and reports whether that may still be answered in time.
func (p *Pool) suspect(m *memory, now time.Time) bool {
	if m.suspected.CompareAndSwap(0, now.UnixNano()) {
		p.askAgain(m, now)
		return true
	}
	usual := 4 * time.Duration(m.latency.Load())
	return now.UnixNano()-m.suspected.Load() < int64(max(suspectFor, usual))
}

// denied closes the gate of an endpoint that denies access until a probe succeeds.
func (p *Pool) denied(l *lease, out result, now time.Time) (closed bool) {
	e := l.endpoint
	m := e.memory
	if wait := out.refusal.Pause(); wait > 0 {
		_, closed = m.gate.close(now, l.passes[0], wait, delays{}, out.reason)
		return closed
	}
	m.gate.leave(l.passes[0])
	switch {
	case l.probe:
	case e.Unmonitored:
		if m.failures.Add(1) < failuresToClose {
			return false
		}
	case p.vouches(m, now):
		p.askAgain(m, now)
		return false
	}
	m.recheckChain()
	return m.gate.closeForever(out.reason)
}
