package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Times between looks at an endpoint.
const (
	lookEvery    = 250 * time.Millisecond // whether a probe is due
	deniedEvery  = time.Minute            // probes while access is denied
	wrongEvery   = 5 * time.Second        // probes while it is on another chain, or behind
	failingEvery = time.Second            // probes after a failure, or while its chain is not known
)

// Run probes the endpoints until ctx ends, and returns when the last probe has ended. Without it a pool learns of
// failures from its requests alone. Call it once.
func (p *Pool) Run(ctx context.Context) {
	var probes sync.WaitGroup
	defer probes.Wait()
	for {
		set := p.set.Load()
		for _, e := range set.endpoints {
			if set.config.JSONRPC && !e.Unmonitored && e.probeDue(time.Now(), set.config.Probe.Every) {
				e.memory.asked.Store(time.Now().UnixNano())
				probes.Go(func() {
					defer e.memory.probing.Store(false)
					p.probe(ctx, set, e)
				})
			}
		}
		if sleep(ctx, lookEvery, p.probes) != nil {
			return
		}
	}
}

// probeNow lets Run look at once whether probes are due.
func (p *Pool) probeNow() {
	select {
	case p.probes <- struct{}{}:
	default: // it will
	}
}

// vouchedFor is how long after the next probe was due the success of the last one still counts.
const vouchedFor = 5 * time.Second

// probeDue reports whether a probe is due, and if so that it has begun.
func (e *endpoint) probeDue(now time.Time, every time.Duration) bool {
	m := e.memory
	switch {
	case m.gate.isForever() && m.wrong.Load():
		every = min(every, wrongEvery)
	case m.gate.isForever():
		every = deniedEvery
	case m.gate.shut.Load():
		every = lookEvery // the gate says when
	case m.failures.Load() > 0 || !e.isConfirmed():
		every = min(every, failingEvery)
	}
	return now.UnixNano()-m.asked.Load() >= int64(every) && m.probing.CompareAndSwap(false, true)
}

// chainEvery is how many probes there are from one that asks for the chain to the next.
const chainEvery = 20

// recheckChain has the next probe ask for the chain: another node may have taken the place of one that was out of use.
func (m *memory) recheckChain() { m.confirms.Store(chainEvery) }

// confirm asks an endpoint for its chain if it is time to, and reports whether that is the right one as far as is known.
func (p *Pool) confirm(ctx context.Context, set *set, e *endpoint) bool {
	m := e.memory
	known := e.isConfirmed()
	if e.chain == 0 || known && m.confirms.Add(1) < chainEvery {
		return true
	}
	id, ok := p.ask(ctx, set, e, "eth_chainId")
	switch {
	case !ok:
		return false
	case id == 0 && known: // it has answered with an error
	case id != e.chain:
		p.wrong(e, fmt.Sprintf("its chain id is %d, not %d", id, e.chain))
		return false
	default:
		m.confirms.Store(0)
		m.chain.Store(id)
	}
	if !known {
		p.lines.wake()
	}
	return true
}

// probe asks an endpoint for its head, and before that for its chain at first and every now and then.
func (p *Pool) probe(ctx context.Context, set *set, e *endpoint) {
	if !p.confirm(ctx, set, e) {
		return
	}
	head, ok := p.ask(ctx, set, e, set.config.Probe.Method)
	if !ok {
		return
	}
	e.memory.head.Store(head)
	if most, best := set.config.Chain.MaxLag, set.bestHead(); most > 0 && best > head && best-head > most {
		p.wrong(e, fmt.Sprintf("it is %d blocks behind", best-head))
		return
	}
	e.memory.vouched.Store(time.Now().UnixNano())
	e.memory.probeFailed.Store(false)
	e.memory.wrong.Store(false)
	if e.memory.gate.isForever() {
		p.opened(e, e.memory.gate.open())
	}
}

// wrong puts an endpoint out of use that answers, but not for what is asked.
func (p *Pool) wrong(e *endpoint, reason string) {
	e.memory.wrong.Store(true)
	e.memory.chain.Store(0)
	if e.memory.gate.closeForever(reason) {
		p.set.Load().config.Logger.Warn("upstream: an endpoint is out of use", "pool", p.name, "upstream", e.Alias, "reason", reason)
	}
}

// bestHead returns the head that others are compared with: the highest if one or two endpoints are asked, otherwise
// the second highest, as one of them may be wrong. It is 0 as long as too few have answered.
func (s *set) bestHead() uint64 {
	var heads []uint64
	asked := 0
	for _, e := range s.endpoints {
		if !e.Unmonitored {
			asked++
		}
		if head := e.memory.head.Load(); head > 0 {
			heads = append(heads, head)
		}
	}
	slices.Sort(heads)
	from := 1 // the end
	if asked > 2 {
		from = 2
	}
	if len(heads) < from {
		return 0
	}
	return heads[len(heads)-from]
}

// ask calls a method without parameters. The number is 0 if the answer has none, such as an error of JSON-RPC. It
// returns false if there was no answer.
func (p *Pool) ask(ctx context.Context, set *set, e *endpoint, method string) (number uint64, ok bool) {
	s := &sending{
		pool: p, ctx: ctx, timeout: set.config.Probe.Timeout, began: time.Now(), call: &Call{Methods: []string{method}},
		request: &http.Request{Method: http.MethodPost, URL: &url.URL{}, Header: http.Header{"Content-Type": {"application/json"}}},
		body:    fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":%q,"params":[]}`, method),
	}
	l, err := s.chargeProbe(e)
	if l == nil || err != nil {
		return 0, false
	}
	e.memory.stats.probes.Add(1)
	reply, out, err := s.try(l)
	if err != nil {
		return 0, false
	}
	defer reply.Body.Close()
	_, long := reply.Body.(*ending)
	var answer struct{ Result json.RawMessage }
	if long || out.outcome != succeeded || reply.StatusCode != http.StatusOK || json.NewDecoder(reply.Body).Decode(&answer) != nil {
		return 0, false
	}
	text := strings.Trim(string(answer.Result), `"`)
	if digits, isHex := strings.CutPrefix(text, "0x"); isHex {
		number, _ = strconv.ParseUint(digits, 16, 64)
	} else {
		number, _ = strconv.ParseUint(text, 10, 64)
	}
	return number, true
}

// chargeProbe charges a probe like any other call. If there is no room it waits, but not in line: it tries again whenever the
// head of a line may, for as long as a probe may take. So endpoints that are always at their limits are probed, too.
func (s *sending) chargeProbe(e *endpoint) (*lease, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
	defer cancel()
	for {
		if e.memory.gate.isForever() {
			return s.chargeClosed(ctx, e)
		}
		l, r, err := s.pool.charge(ctx, e, s.call, true)
		if l != nil || err != nil || r.never || r.at.IsZero() {
			return l, err
		}
		if r.held {
			r.at = earliest(r.at, time.Now().Add(recheck))
		}
		if sleep(ctx, time.Until(r.at), nil) != nil {
			return nil, nil
		}
	}
}

// chargeClosed charges a probe of an endpoint that is out of use until one succeeds: it passes the endpoint's gate, but not
// those of its account and its provider.
func (s *sending) chargeClosed(ctx context.Context, e *endpoint) (*lease, error) {
	l := &lease{pool: s.pool, endpoint: e, call: s.call, probe: true}
	e.memory.inFlight.Add(1)
	for i, g := range e.gates() {
		if i == 0 {
			continue
		}
		var ok bool
		if l.passes[i], _, ok = g.enter(time.Now()); !ok {
			l.leave()
			return nil, nil
		}
	}
	e.memory.stats.attempts.Add(1)
	d, err := l.reserve(ctx)
	if err != nil || !d.Allowed {
		l.leave()
		return nil, err
	}
	return l, nil
}
