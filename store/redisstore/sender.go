package redisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir"
)

// A sender sends the requests of a send queue in batches, and delivers the replies.
type sender struct {
	store    *Store
	queue    *sendQueue
	place    int            // index in the queue
	client   rueidis.Client // this sender's own
	failed   int64          // the store's failure count when this client last replied
	failures recentFailures // in a cluster

	// Reused from one round to the next.
	requests []*request
	rows     []row
	places   map[string]int   // of rows, by key
	combined map[sameCall]int // of calls
	takes    []take
	calls    []*pending
	order    []int
	keys     []string
	args     []string
	commands []rueidis.Completed
	routes   []route // of commands
}

// A row is the requests for one key, which take.lua serves in order.
type row struct {
	key      string
	n        *compiledLimits
	requests []*request
}

// A take is one call of take.lua: rows[from:to].
type take struct {
	from, to int
	brief    int // values in the reply for each row; 0 = it depends
}

// A pending is a call and the requests that wait for it: one request with a call of
// its own, or several Takes, reservations or settlements.
type pending struct {
	*call
	requests []*request
}

// rowsPerCall is how many rows one call of take.lua serves, except in a cluster. More
// would save little, and delay other commands on the server.
const rowsPerCall = 32

func newSender(q *sendQueue, place int, client rueidis.Client) *sender {
	return &sender{store: q.store, queue: q, place: place, client: client, failures: recentFailures{slots: map[uint16]bool{}}, places: map[string]int{}, combined: map[sameCall]int{}}
}

func (s *sender) run() {
	for {
		s.requests = s.queue.next(s.place, s.requests, len(s.rows))
		if len(s.requests) == 0 {
			return
		}
		s.sort()
		if err := s.tryConnection(); err != nil {
			s.failAll(err)
		}
		s.sendTakes()
		s.sendCalls()
		s.store.under.Add(int64(-len(s.requests)))
		if isMany(len(s.rows), len(s.requests)) {
			runtime.Gosched() // lets callers that just got their reply run, so that their next calls are sent together
		}
	}
}

// tryConnection pings the server, in case the connection broke while it was idle: a call that
// is sent over a broken connection has an unknown outcome. That is worth a round trip
// only if another call has failed since this client's last reply.
func (s *sender) tryConnection() error {
	failures := s.store.counts.failures.Load()
	if failures == s.failed || s.store.cluster { // a cluster's client has many connections
		return nil
	}
	ctx, cancel := s.store.withDeadline(context.Background())
	defer cancel()
	ping := s.client.B().Ping().Build().Pin()
	err := s.client.Do(ctx, ping).Error()
	if err != nil { // the first may only have detected a broken connection; the second reconnects
		err = s.client.Do(ctx, ping).Error()
	}
	if err == nil {
		s.failed = failures
	}
	return err
}

// failAll ends all requests of the batch with an error before they are sent.
func (s *sender) failAll(err error) {
	err = fmt.Errorf("redisstore: not sent: %v", err) // %v, since ErrUnknown of the ping says nothing about the requests
	for i := range s.rows {
		for _, r := range s.rows[i].requests {
			s.fail(r, err)
		}
	}
	for _, p := range s.calls {
		for _, r := range p.requests {
			s.fail(r, err)
		}
	}
	s.rows, s.calls = s.rows[:0], nil
}

// sort adds each request to the row of its key or, if take.lua does not serve it, to
// a call.
func (s *sender) sort() {
	s.rows, s.calls = s.rows[:0], s.calls[:0]
	clear(s.places)
	clear(s.combined)
	for _, r := range s.requests {
		switch {
		case !r.take():
		case r.call != nil:
			s.sortCall(r)
		default:
			s.sortTake(r)
		}
	}
}

func (s *sender) sortTake(r *request) {
	at, known := s.places[r.key]
	switch {
	case r.n.small == nil, known && s.rows[at].n != r.n:
		s.addToCall(r, false)
	case !known && s.store.held.has(r.key):
		s.addToSmallCall(r)
	case known:
		s.rows[at].requests = append(s.rows[at].requests, r)
	default:
		s.places[r.key] = len(s.rows)
		s.rows = append(s.rows, row{r.key, r.n, append(s.spare(), r)})
	}
}

// spare returns the request list of the row that was last at this index, for reuse.
func (s *sender) spare() []*request {
	if len(s.rows) < cap(s.rows) {
		return s.rows[:len(s.rows)+1][len(s.rows)].requests[:0]
	}
	return nil
}

// addToCall adds a Take to a call of do.lua: in a cluster to one for the same key,
// otherwise to any. passedOn says that take.lua could not serve the row, most likely because
// it has holds.
func (s *sender) addToCall(r *request, passedOn bool) {
	ch := charge{key: r.key, n: r.n, cost: r.cost}
	for _, p := range s.calls {
		if p.takes() && p.large && (len(p.charges) < rowsPerCall && !s.store.cluster || p.charges[0].key == r.key) {
			p.charges, p.requests = append(p.charges, ch), append(p.requests, r)
			p.holds = p.holds || passedOn
			return
		}
	}
	p := alone(r)
	p.large, p.holds = true, passedOn
	s.calls = append(s.calls, p)
}

// addToSmallCall adds a Take from a row with holds to the call of small.lua for that row.
func (s *sender) addToSmallCall(r *request) {
	for _, p := range s.calls {
		if p.takes() && !p.large && p.charges[0].key == r.key {
			p.charges, p.requests = append(p.charges, charge{key: r.key, n: r.n, cost: r.cost}), append(p.requests, r)
			return
		}
	}
	s.calls = append(s.calls, alone(r))
}

// alone returns the call for one Take.
func alone(r *request) *pending {
	return &pending{&call{op: opEach, charges: []charge{{key: r.key, n: r.n, cost: r.cost}}}, []*request{r}}
}

// takes says whether a call is of Takes, and has not been sent.
func (p *pending) takes() bool {
	return len(p.requests) > 0 && p.requests[0].call == nil && p.tries == 0
}

// sendTakes sends all rows, grouping rows with the same compiled limits.
func (s *sender) sendTakes() {
	if len(s.rows) == 0 {
		return
	}
	perCall := rowsPerCall
	if s.store.cluster {
		perCall = 1
	}
	s.takes = s.takes[:0]
	for from := 0; from < len(s.rows); {
		to := from + 1
		for to < len(s.rows) && to < from+perCall && s.rows[to].n == s.rows[from].n {
			to++
		}
		s.takes = append(s.takes, take{from: from, to: to})
		from = to
	}
	s.exchange(len(s.takes), func(i int, named bool) rueidis.Completed {
		keys, args := s.encodeTake(&s.takes[i])
		return takeScript.command(s.client.B(), named, keys, args)
	}, func(i int, values []int64, err error) {
		s.decodeTake(&s.takes[i], values, err)
	})
}

// encodeTake returns the keys and arguments of take.lua.
func (s *sender) encodeTake(t *take) (keys, args []string) {
	m := s.rows[t.from].n.small
	s.keys, s.args = s.keys[:0], append(s.args[:0], m.text, s.store.nowText(), s.store.keepText)
	plain := true
	for i := t.from; i < t.to; i++ {
		runs := m.runs(s.rows[i].requests)
		plain = plain && runs == ""
		s.keys, s.args = append(s.keys, s.rows[i].key), append(s.args, runs)
	}
	t.brief = 0
	if plain {
		s.args = s.args[:len(s.args)-len(s.keys)]
		t.brief = m.brief
	}
	return s.keys, s.args
}

// runs returns what to take from a row, for take.lua.
func (m *small) runs(requests []*request) string {
	if len(requests) == 1 && requests[0].cost == 1 {
		return ""
	}
	var b []byte
	eachRun(requests, func(units int64, run []*request) {
		if units == 0 || units > m.cap {
			b = doubles(b, 0, 0, 0) // nothing can be taken: only read the state
			return
		}
		c := m.span(units)
		b = doubles(b, int64(len(run)), c.w, c.f)
	})
	return string(b)
}

// eachRun calls f for each sequence of requests that cost the same.
func eachRun(requests []*request, f func(units int64, run []*request)) {
	for len(requests) > 0 {
		n := 1
		for n < len(requests) && requests[n].cost == requests[0].cost {
			n++
		}
		f(requests[0].cost, requests[:n])
		requests = requests[n:]
	}
}

// decodeTake delivers the reply of take.lua.
func (s *sender) decodeTake(t *take, values []int64, err error) {
	var now int64
	if err == nil {
		now, values = values[0], values[1:]
	}
	for i := t.from; i < t.to; i++ {
		row := &s.rows[i]
		if err == nil && t.brief > 0 {
			s.decodeBrief(row, now, values[:t.brief])
			values = values[t.brief:]
			continue
		}
		if err == nil {
			values = s.decodeRow(row, now, values)
			continue
		}
		for _, r := range row.requests {
			if concernsOne(err) && t.to > t.from+1 {
				s.calls = append(s.calls, alone(r))
				continue
			}
			s.fail(r, err)
		}
	}
}

// concernsOne says whether an error is about one row or policy, so that the other requests
// of the call can be sent again without it. Nothing was changed.
func concernsOne(err error) bool {
	return errors.Is(err, errOverfull) || errors.Is(err, weir.ErrReserveOnly) || errors.Is(err, weir.ErrState) || isState(err)
}

// decodeBrief delivers the reply to the only request of a row, for one unit.
func (s *sender) decodeBrief(row *row, now int64, values []int64) {
	m, r := row.n.small, row.requests[0]
	ahead := pair{w: values[0] >> 1}
	if len(values) > 1 {
		ahead.f = values[1]
	}
	switch {
	case values[0] < 0:
		s.addToCall(r, true)
		return
	case values[0]&1 == 1:
		r.decision = m.admitted(m.plus(ahead, m.one))
	default:
		r.decision = m.refused(ahead, 1)
	}
	if !r.answer() {
		s.giveBack(r, now)
	}
}

func (s *sender) decodeRow(row *row, now int64, values []int64) (rest []int64) {
	m := row.n.small
	mine, ahead := values[0] >= 0, pair{values[0], values[1]}
	values = values[2:]
	eachRun(row.requests, func(units int64, run []*request) {
		admitted := int(values[0])
		values = values[1:]
		for i, r := range run {
			switch {
			case !mine:
				s.addToCall(r, true)
				continue
			case units == 0:
				r.decision = m.admitted(ahead)
			case i < admitted:
				ahead = m.plus(ahead, m.span(units))
				r.decision = m.admitted(ahead)
			default:
				r.decision = m.refused(ahead, units)
			}
			if !r.answer() {
				s.giveBack(r, now)
			}
		}
	})
	return values
}

// exchange sends n commands in one pipeline and calls answered with each reply. Commands
// that a server did not execute because it does not have the script are sent again: the first
// with the script's text, and then the others by hash.
func (s *sender) exchange(n int, command func(i int, named bool) rueidis.Completed, answered func(i int, values []int64, err error)) {
	s.order = s.order[:0]
	for i := range n {
		s.order = append(s.order, i)
	}
	for due := s.pipeline(s.order, command, answered); len(due) > 0; {
		s.store.counts.scripts.Add(1)
		s.store.counts.commands.Add(1)
		cmd := command(due[0], false)
		w := s.routeOf(cmd, weir.Now())
		values, err := s.client.Do(context.Background(), w.send(cmd)).AsIntSlice()
		s.noteReply(w, err)
		answered(due[0], values, err)
		due = s.pipeline(due[1:], command, answered)
	}
}

// pipeline sends commands by hash and returns those whose script the server does not have.
func (s *sender) pipeline(places []int, command func(i int, named bool) rueidis.Completed, answered func(i int, values []int64, err error)) (unknown []int) {
	if len(places) == 0 {
		return nil
	}
	s.commands, s.routes = s.commands[:0], s.routes[:0]
	now := weir.Now()
	for _, i := range places {
		cmd := command(i, true)
		w := s.routeOf(cmd, now)
		s.commands, s.routes = append(s.commands, w.send(cmd)), append(s.routes, w)
	}
	s.store.counts.commands.Add(int64(len(places)))
	for k, r := range s.client.DoMulti(context.Background(), s.commands...) {
		values, err := r.AsIntSlice()
		s.noteReply(s.routes[k], err)
		if unknownScript(err) {
			unknown = append(unknown, places[k])
			continue
		}
		answered(places[k], values, err)
	}
	return unknown
}

// sendCalls sends all calls, and sends calls again as requested by the script.
func (s *sender) sendCalls() {
	for len(s.calls) > 0 {
		round := s.calls
		s.calls = nil
		s.exchange(len(round), func(i int, named bool) rueidis.Completed {
			if round[i].at == nil {
				round[i].at = []int64{s.store.nowMicros()}
			}
			script, keys, args := round[i].encode(s.store)
			return script.command(s.client.B(), named, keys, args)
		}, func(i int, values []int64, err error) {
			s.answered(round[i], values, err)
		})
	}
}

// answered handles the reply to a call.
func (s *sender) answered(p *pending, values []int64, err error) {
	p.err = err
	if err == nil && !p.decode(values) {
		if p.small { // small.lua could not serve it: do.lua will
			s.calls = append(s.calls, p)
			return
		}
		if s.again(p) {
			return
		}
	}
	if len(p.requests) > 1 && concernsOne(p.err) {
		for _, r := range p.requests {
			s.calls = append(s.calls, separate(r))
		}
		return
	}
	if p.err == nil {
		p.noteHolds(s.store)
	}
	for i, r := range p.requests {
		if p.err != nil {
			s.fail(r, p.err)
			continue
		}
		if r.call == nil {
			r.decision = p.decision(i)
		}
		p.share(i)
		if !r.answer() {
			s.giveBack(r, p.now)
		}
	}
}

// again sends a call again with what the script requested. If that is not possible, it sets
// the call's error.
func (s *sender) again(p *pending) bool {
	if p.tries++; p.tries >= maxTries {
		p.err = errChanging
		return false
	}
	if p.err = p.resolveAgain(s.store); p.err != nil {
		return false
	}
	s.calls = append(s.calls, p)
	return true
}

// fail ends a request with an error.
func (s *sender) fail(r *request, err error) {
	r.err = s.store.failed(err)
	if _, answered := rueidis.IsRedisErr(err); !answered {
		s.store.counts.failures.Add(1)
	}
	unknown := errors.Is(r.err, weir.ErrUnknown) // answer hands the request to the caller
	if r.answer() && unknown {
		s.store.counts.unknown.Add(1)
	}
}

// giveBack refunds the charges of a caller who has left, as of the server's now.
func (s *sender) giveBack(r *request, now int64) {
	undo := r.undo(now)
	if undo == nil {
		return
	}
	s.store.counts.givenBack.Add(1)
	s.calls = append(s.calls, &pending{call: undo})
}

// undo returns the call that undoes a request, or nil if there is nothing to undo.
func (r *request) undo(now int64) *call {
	if r.call == nil {
		if !r.decision.Allowed || r.cost == 0 {
			return nil
		}
		return &call{op: opRefund, charges: []charge{{key: r.key, n: r.n, cost: r.cost, at: now}}}
	}
	undo := &call{}
	switch r.call.op {
	case opEach, opAll:
		undo.op = opRefund
	case opHold:
		undo.op = opSettle
	default:
		return nil
	}
	if r.call.op != opEach && !r.call.allowed() {
		return nil
	}
	for i, ch := range r.call.charges {
		if r.call.outcomes[i][0] == 0 || ch.cost == 0 && undo.op == opRefund {
			continue
		}
		ch.used = 0 // debits are not refunded
		if ch.at = now; undo.op == opSettle {
			ch.cost = 0
		}
		undo.charges = append(undo.charges, ch)
	}
	if len(undo.charges) == 0 {
		return nil
	}
	return undo
}

// allowed says whether every charge was admitted.
func (c *call) allowed() bool {
	for _, o := range c.outcomes {
		if o[0] == 0 {
			return false
		}
	}
	return true
}
