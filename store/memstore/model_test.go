package memstore

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/storeapi"
)

// model is the slow, obvious table: an exact ledger for every pair of policy and
// key that has a row, one more for every overflow row, and the rules of eviction
// spelled out. It gets the rows that the table has evicted in a step, and checks
// that these were a right choice: which of equals goes is not in the rules.
type model struct {
	fail  func(format string, args ...any)
	table *Table // for its bounds, its epoch and the shards of its keys

	now   int64
	rows  map[pair]*modelRow
	over  map[string]*modelRow // overflow rows by policy name
	holds map[[16]byte]*modelHold
	past  map[[16]byte]modelPast
	sets  []replacement
	stats Stats

	admitted int           // rows that the call in progress may make
	gone     map[pair]bool // what the table has evicted in this step, and the model not yet
}

// A pair is a policy's name and a key.
type pair struct{ policy, key string }

// A modelRow is a key's ledger, and the limits it is written under. Its address is
// its identity: a key that was evicted and comes back has another.
type modelRow struct {
	policy *weir.Policy
	ledger *algo.Ledger
}

type modelHold struct {
	pair   pair
	row    *modelRow
	over   bool // row is an overflow row
	id     uint64
	expiry int64
}

// A modelPast is how a reservation was settled, which is remembered until its expiry.
type modelPast struct {
	pair  pair
	until int64
	out   weir.Settled
}

func newModel(table *Table, fail func(string, ...any)) *model {
	return &model{
		fail: fail, table: table,
		rows: map[pair]*modelRow{}, over: map[string]*modelRow{}, holds: map[[16]byte]*modelHold{}, past: map[[16]byte]modelPast{},
	}
}

// A replacement says that whoever brings old means new.
type replacement struct{ old, new *weir.Policy }

// current returns the policy that p means.
func (m *model) current(p *weir.Policy) *weir.Policy {
	for _, s := range m.sets {
		if s.old.Same(p) {
			return s.new
		}
	}
	return p
}

// replace lets whoever means old mean new, which means itself from now on.
func (m *model) replace(old, new *weir.Policy) {
	m.sets = slices.DeleteFunc(m.sets, func(s replacement) bool { return s.old.Same(new) })
	for i := range m.sets {
		if m.sets[i].new.Same(old) {
			m.sets[i].new = new
		}
	}
	m.sets = append(m.sets, replacement{old, new})
}

func (m *model) shardOf(at pair) int {
	h := m.table.hash.sum(at.key) ^ m.table.hash.sum(at.policy)
	return int(h >> m.table.shift)
}

// work is a copy of a row that a call is trying something on.
type work struct {
	pair     pair
	at       *modelRow // where it came from; nil if there is no row
	over     bool      // at is the overflow row
	policy   *weir.Policy
	ledger   *algo.Ledger
	admitted bool
	changed  bool
	endBy    int64 // no hold lasts longer; see convert
}

// begin copies the row of a key, or what a key without one starts with.
func (m *model) begin(at pair, p *weir.Policy) *work {
	w := &work{pair: at, policy: p, endBy: math.MaxInt64}
	if r := m.rows[at]; r != nil {
		w.at, w.policy, w.ledger = r, r.policy, r.ledger.Clone()
		return w
	}
	o := m.over[at.policy]
	if o != nil && o.ledger.Unused(m.now) {
		delete(m.over, at.policy)
		o = nil
	}
	if o == nil {
		w.ledger = algo.NewLedger(p.Compiled().Rules, int64(m.table.epoch))
		return w
	}
	w.policy, w.ledger = o.policy, o.ledger.Clone()
	if w.ledger.Advance(m.now) > 0 { // somebody will settle with that row: stay there
		w.at, w.over = o, true
	}
	return w
}

// convert puts p in force on a copy of a row's ledger.
func (m *model) convert(w *work, p *weir.Policy) (l *algo.Ledger, endBy int64, err error) {
	l = w.ledger.Clone()
	if w.policy.Same(p) {
		return l, w.endBy, nil
	}
	if err := l.Set(m.now, p.Compiled().Rules, p.Compiled().Continues(w.policy.Compiled())); err != nil {
		return nil, 0, err
	}
	if _, err := p.Compiled().Expiry(m.now, weir.NoExpiry); err != nil { // what p holds must expire
		endBy := m.now + int64(compiled.MaxTTL)
		l.EndHoldsBy(endBy)
		return l, min(endBy, w.endBy), nil
	}
	return l, w.endBy, nil
}

// attempt makes a charge on a copy if it fits, and says which hold it is.
func (m *model) attempt(w *work, p *weir.Policy, cost int64, op weir.Op, expiry int64) (weir.Decision, uint64, error) {
	if w.over {
		m.stats.OverflowHits++
	}
	l, endBy, err := m.convert(w, p)
	if err != nil {
		return weir.Decision{}, 0, err
	}
	var v algo.Verdict
	var id uint64
	switch op {
	case weir.ReserveAll:
		id, v = l.Reserve(m.now, cost, expiry)
	case weir.DebitEach:
		v = l.Debit(m.now, cost)
	default:
		v = l.Take(m.now, cost)
	}
	if v.OK && (cost > 0 || op == weir.ReserveAll) || op == weir.TakeEach && cost > 0 && m.refusalConverts(w, p, l) {
		w.policy, w.ledger, w.endBy, w.changed = p, l, endBy, true
	}
	return storeapi.Decision(v, weir.Instant(m.now)), id, nil
}

// refusalConverts says whether a row stays under the policy of a charge that was refused, whose ledger is l.
func (m *model) refusalConverts(w *work, p *weir.Policy, l *algo.Ledger) bool {
	exists := (w.at != nil || w.changed) && !w.over
	return exists && !w.policy.Same(p) && p.Compiled().RefusalConverts(w.policy.Compiled()) && !l.HasHolds(m.now)
}

// put makes a copy the state. It returns false if there is no room for a new row.
func (m *model) put(w *work, taken map[pair]bool) bool {
	if w.at == nil && w.ledger.Unused(m.now) {
		return true
	}
	if !m.admit(w, taken) {
		return false
	}
	if w.at == nil {
		w.at = &modelRow{}
		m.rows[w.pair] = w.at
		m.admitted--
	}
	*w.at = modelRow{w.policy, w.ledger}
	for _, h := range m.holds {
		if h.row == w.at {
			h.expiry = min(h.expiry, w.endBy)
		}
	}
	return true
}

// admit gets a key without a row the right to one: a place that nobody has, or
// that of a row that goes.
func (m *model) admit(w *work, taken map[pair]bool) bool {
	if w.at != nil || w.admitted {
		return true
	}
	if len(m.rows)+m.admitted >= int(m.table.maxKeys) && !m.evict(m.shardOf(w.pair), taken) {
		return false
	}
	w.admitted = true
	m.admitted++
	return true
}

// evict drops the row of a shard that must go for a new one: one that has nothing
// in use or, if there is none, one of those with the least share in use. None goes
// that a call has taken, that would refuse one unit, or that has a reservation open.
func (m *model) evict(shard int, taken map[pair]bool) bool {
	rows := map[pair]usage{}
	for at, r := range m.rows {
		if m.shardOf(at) == shard && !taken[at] {
			if s, ok := m.stand(r); ok {
				rows[at] = s
			}
		}
	}
	bound := math.Inf(1)
	for _, s := range rows {
		bound = min(bound, s.most)
	}
	for _, at := range slices.SortedFunc(maps.Keys(rows), func(a, b pair) int { return cmp.Compare(rows[a].least, rows[b].least) }) {
		if m.gone[at] && rows[at].least <= bound {
			m.drop(at, rows[at].used)
			return true
		}
	}
	if len(rows) > 0 {
		m.fail("one of the rows with the least share in use had to go: %+v; gone are %v", rows, m.gone)
	}
	return false
}

// usage is how much of a row is in use. Shares may be counted in whole units,
// rounded up, or in ticks.
type usage struct {
	used        int64
	least, most float64
}

// stand tells how a row stands, or returns false if it must stay.
func (m *model) stand(r *modelRow) (usage, bool) {
	l := r.ledger.Clone()
	if l.Advance(m.now) > 0 {
		return usage{}, false
	}
	s := l.Usage(m.now)
	t := s
	if w := r.policy.Compiled().Word; w != nil {
		t = w.Usage(w.Save(l), m.now)
	}
	if s.Used != t.Used || s.Full != t.Full {
		m.fail("one ledger stands at %+v and at %+v", s, t)
	}
	return usage{s.Used, min(s.Share, t.Share), max(s.Share, t.Share)}, !s.Full
}

// drop forgets a row that the table has evicted.
func (m *model) drop(at pair, forgiven int64) {
	if !m.gone[at] {
		m.fail("%v had to be evicted, and is still there", at)
	}
	delete(m.gone, at)
	delete(m.rows, at)
	m.stats.Evicted++
	m.stats.Forgiven += uint64(forgiven)
}

// intoOverflow makes a copy that found no place one of the overflow row.
func (m *model) intoOverflow(w *work, p *weir.Policy) {
	name := w.pair.policy
	if m.over[name] == nil {
		m.over[name] = &modelRow{p, algo.NewLedger(p.Compiled().Rules, int64(m.table.epoch))}
	}
	o := m.over[name]
	*w = work{pair: w.pair, at: o, over: true, policy: o.policy, ledger: o.ledger.Clone(), endBy: math.MaxInt64}
}

// change makes one charge, on the overflow row if there is no room for another.
func (m *model) change(c weir.Charge, op weir.Op, expiry int64) (d weir.Decision, w *work, id uint64, err error) {
	p := m.current(c.Policy)
	w = m.begin(pair{p.Name(), c.Key}, p)
	for {
		d, id, err = m.attempt(w, p, c.Cost, op, expiry)
		if l, endBy, bad := m.convert(w, p); err == nil && bad == nil && !d.Allowed && c.Cost > 0 && m.refusalConverts(w, p, l) { // a batch of one
			w.policy, w.ledger, w.endBy, w.changed = p, l, endBy, true
		}
		if err != nil || !w.changed || m.put(w, nil) {
			return d, w, id, err
		}
		m.intoOverflow(w, p)
	}
}

// Take is what Table.Take must do.
func (m *model) Take(c weir.Charge) (weir.Decision, error) {
	if m.current(c.Policy).ReserveOnly() {
		return weir.Decision{}, weir.ErrReserveOnly
	}
	defer func() { m.admitted = 0 }()
	d, _, _, err := m.change(c, weir.TakeEach, 0)
	return d, err
}

// A trial is a batch on copies of all its rows.
type trial struct {
	works []*work
	of    []int    // by charge: which of works
	ids   []uint64 // by charge: the hold that it made
}

// try makes every charge that fits, on copies. Who gets a row is settled after: if
// one finds no place, all is tried again with it in the overflow row.
func (m *model) try(b *weir.Batch, expiry []int64) (*trial, error) {
	over := make([]bool, len(b.Charges))
	for {
		t := &trial{of: make([]int, len(b.Charges)), ids: make([]uint64, len(b.Charges))}
		for i, c := range b.Charges {
			var err error
			p := m.current(c.Policy)
			t.of[i] = m.workOf(t, p, c.Key, over[i])
			b.Decisions[i], t.ids[i], err = m.attempt(t.works[t.of[i]], p, c.Cost, b.Op, expiry[i])
			if err != nil {
				return nil, err
			}
		}
		if (b.Op == weir.TakeAll || b.Op == weir.ReserveAll) && !b.Allowed() || m.admitAll(t, over) {
			return t, nil
		}
		m.admitted = 0
	}
}

// workOf returns which of a trial's rows is that of a key.
func (m *model) workOf(t *trial, p *weir.Policy, key string, over bool) int {
	at := pair{p.Name(), key}
	for i, w := range t.works {
		if w.pair == at {
			return i
		}
	}
	w := &work{pair: at}
	if over {
		m.intoOverflow(w, p)
	} else {
		o := m.over[at.policy]
		if w = m.begin(at, p); t.overflow(at.policy) >= 0 {
			m.over[at.policy] = o // a charge before this one is about to use it
		}
	}
	if w.over {
		if i := t.overflow(at.policy); i >= 0 {
			return i
		}
	}
	t.works = append(t.works, w)
	return len(t.works) - 1
}

// overflow returns which of a trial's rows is the overflow row of a name, or -1.
func (t *trial) overflow(name string) int {
	return slices.IndexFunc(t.works, func(w *work) bool { return w.over && w.pair.policy == name })
}

func (m *model) admitAll(t *trial, over []bool) bool {
	taken := map[pair]bool{}
	for _, w := range t.works {
		taken[w.pair] = true
	}
	all := true
	for i, of := range t.of {
		if w := t.works[of]; w.changed && !m.admit(w, taken) {
			over[i], all = true, false
		}
	}
	return all
}

// keep puts everything that a trial has changed.
func (m *model) keep(t *trial) {
	for _, w := range t.works {
		if w.changed && !m.put(w, nil) {
			m.fail("%v was admitted, and finds no place", w.pair)
		}
	}
}

// Do is what Table.Do must do. It gets the receipts' ids from what the table did.
func (m *model) Do(b *weir.Batch, did *weir.Batch) error {
	defer func() { m.admitted = 0 }()
	switch b.Op {
	case weir.TakeEach, weir.TakeAll, weir.DebitEach:
		return m.takeBatch(b)
	case weir.ReserveAll:
		return m.reserve(b, did)
	case weir.Renew:
		return m.renew(b)
	}
	for i, c := range b.Charges {
		p := m.current(c.Policy)
		at := pair{p.Name(), c.Key}
		switch b.Op {
		case weir.PeekEach:
			var err error
			if b.Decisions[i], _, err = m.peek(c); err != nil {
				return err
			}
		case weir.Settle:
			b.Settled[i] = m.settle(at, p, b.Receipts[i], c.Cost)
		case weir.ResetEach:
			if w := m.begin(at, p); w.at != nil && !w.over {
				w.at.ledger.Reset(m.now)
			}
		}
	}
	return nil
}

func (m *model) takeBatch(b *weir.Batch) error {
	for _, c := range b.Charges {
		if m.current(c.Policy).ReserveOnly() {
			return weir.ErrReserveOnly
		}
	}
	expiry := make([]int64, len(b.Charges))
	if b.Op == weir.TakeAll && len(b.Charges) == 1 {
		var err error
		b.Decisions[0], _, _, err = m.change(b.Charges[0], b.Op, 0)
		return err
	}
	t, err := m.try(b, expiry)
	if err != nil {
		return err
	}
	if b.Op != weir.TakeAll || b.Allowed() {
		m.keep(t)
		return nil
	}
	m.refuse(b)
	return nil
}

// refuse makes a batch of which one charge was refused. Rows stay under the policies that refused; of several
// charges of a row, only the first is considered.
func (m *model) refuse(b *weir.Batch) {
	seen := map[pair]bool{}
	for i, c := range b.Charges {
		p := m.current(c.Policy)
		at := pair{p.Name(), c.Key}
		if d := &b.Decisions[i]; d.Allowed {
			d.Allowed, d.Reason = false, weir.NotCharged
		} else if !seen[at] && c.Cost > 0 && m.rows[at] != nil {
			w := m.begin(at, p)
			if l, _, err := m.convert(w, p); err == nil && m.refusalConverts(w, p, l) {
				*w.at = modelRow{p, l}
			}
		}
		seen[at] = true
	}
}

// peek says what take would.
// peek says what Take would, and whether the key has unexpired reservations.
func (m *model) peek(c weir.Charge) (d weir.Decision, held bool, err error) {
	p := m.current(c.Policy)
	l, _, err := m.convert(m.begin(pair{p.Name(), c.Key}, p), p)
	if err != nil {
		return weir.Decision{}, false, err
	}
	return storeapi.Decision(l.Peek(m.now, c.Cost), weir.Instant(m.now)), l.HasHolds(m.now), nil
}

func (m *model) reserve(b, did *weir.Batch) error {
	expiry := make([]int64, len(b.Charges))
	full := m.fullOfHolds(len(b.Charges))
	for i, c := range b.Charges {
		var err error
		if expiry[i], err = m.current(c.Policy).Compiled().Expiry(int64(weir.Instant(m.now)), b.TTL); err != nil {
			return err
		}
	}
	if full {
		return m.refuseHolds(b)
	}
	if len(b.Charges) == 1 {
		d, w, id, err := m.change(b.Charges[0], b.Op, expiry[0])
		if b.Decisions[0] = d; err == nil && d.Allowed {
			m.note(b, did, 0, w, id, expiry[0])
		}
		return err
	}
	t, err := m.try(b, expiry)
	if err != nil {
		return err
	}
	if !b.Allowed() {
		m.refuse(b)
		return nil
	}
	m.keep(t)
	for i := range b.Charges {
		m.note(b, did, i, t.works[t.of[i]], t.ids[i], expiry[i])
	}
	return nil
}

// fullOfHolds says whether n more reservations do not fit.
func (m *model) fullOfHolds(n int) bool { return m.openHolds()+n > int(m.table.maxHolds) }

// openHolds counts the reservations that are not over.
func (m *model) openHolds() (n int) {
	for _, h := range m.holds {
		if h.expiry > m.now {
			n++
		}
	}
	return n
}

// refuseHolds refuses reservations until the first of those that are open expires,
// or for as long as the charge would be refused anyway.
func (m *model) refuseHolds(b *weir.Batch) error {
	wait := weir.Never
	if first := m.firstExpiry(); first != algo.Never && len(b.Charges) <= int(m.table.maxHolds) {
		wait = weir.Instant(first).Sub(weir.Instant(m.now))
	}
	for i, c := range b.Charges {
		d, held, err := m.peek(c)
		if err != nil {
			return err
		}
		if d.RetryAfter != weir.Never && (wait == weir.Never || wait > d.RetryAfter) {
			d.Allowed, d.Reason, d.RetryAfter, d.Held = false, weir.QueueFull, wait, held
		}
		b.Decisions[i] = d
	}
	return nil
}

// firstExpiry returns when the first of the open reservations expires.
func (m *model) firstExpiry() int64 {
	first := int64(algo.Never)
	for _, h := range m.holds {
		if h.expiry > m.now {
			first = min(first, h.expiry)
		}
	}
	return first
}

// note remembers a reservation, under the id that the table gave it.
func (m *model) note(b, did *weir.Batch, i int, w *work, id uint64, expiry int64) {
	b.Receipts[i] = weir.Receipt{ID: did.Receipts[i].ID, Units: b.Charges[i].Cost, Expiry: weir.Instant(expiry)}
	if w.at == nil { // a hold of nothing that is over at once
		w.at = &modelRow{w.policy, w.ledger}
	}
	m.holds[b.Receipts[i].ID] = &modelHold{w.pair, w.at, w.over, id, min(expiry, w.endBy)}
	m.holds[b.Receipts[i].ID].pair = pair{m.current(b.Charges[i].Policy).Name(), b.Charges[i].Key}
}

// held returns the reservation of a receipt, if it is of that key.
func (m *model) held(at pair, r weir.Receipt) *modelHold {
	if h := m.holds[r.ID]; h != nil && h.pair == at {
		return h
	}
	return nil
}

// ledgerOf returns the ledger that has a reservation, or nil if its row has gone.
func (m *model) ledgerOf(h *modelHold, p *weir.Policy) *algo.Ledger {
	if !h.over && m.begin(h.pair, p).at != h.row {
		return nil
	}
	return h.row.ledger
}

func (m *model) settle(at pair, p *weir.Policy, r weir.Receipt, used int64) weir.Settled {
	if was, ok := m.past[r.ID]; ok && was.pair == at && was.until > m.now {
		return was.out
	}
	h := m.held(at, r)
	if h == nil {
		return weir.Settled{Late: true}
	}
	delete(m.holds, r.ID)
	l := m.ledgerOf(h, p)
	if l == nil {
		return weir.Settled{Late: true}
	}
	out := weir.Settled(l.Settle(m.now, h.id, used))
	until := h.expiry
	if until == algo.Never {
		until = m.now + int64(compiled.MaxTTL)
	}
	if !out.Late {
		m.past[r.ID] = modelPast{at, until, out}
	}
	return out
}

func (m *model) renew(b *weir.Batch) error {
	for _, c := range b.Charges {
		if _, err := m.current(c.Policy).Compiled().Expiry(int64(weir.Instant(m.now)), b.TTL); err != nil {
			return err
		}
	}
	for i, c := range b.Charges {
		p := m.current(c.Policy)
		expiry, _ := p.Compiled().Expiry(m.now, b.TTL)
		b.Decisions[i] = weir.Decision{Reason: weir.TooLate, RetryAfter: weir.Never}
		h := m.held(pair{p.Name(), c.Key}, b.Receipts[i])
		if h == nil {
			continue
		}
		if l := m.ledgerOf(h, p); l == nil || !l.Renew(m.now, h.id, expiry) {
			delete(m.holds, b.Receipts[i].ID)
			continue
		}
		h.expiry = expiry
		b.Receipts[i].Expiry = weir.Instant(expiry)
		b.Decisions[i] = weir.Decision{Allowed: true, Reason: weir.Admitted}
	}
	return nil
}

// Set is what Table.Set must do: all rows that are under old's limits, or none.
func (m *model) Set(old, new *weir.Policy) error {
	old = m.current(old)
	if old.Same(new) {
		return nil
	}
	var works []*work
	for at, r := range m.rows {
		if r.policy.Same(old) {
			works = append(works, m.begin(at, old))
		}
	}
	if o := m.over[old.Name()]; o != nil && o.policy.Same(old) {
		works = append(works, &work{pair: pair{policy: old.Name()}, at: o, over: true, policy: o.policy, ledger: o.ledger.Clone(), endBy: math.MaxInt64})
	}
	for _, w := range works {
		var err error
		if w.ledger, w.endBy, err = m.convert(w, new); err != nil {
			return err
		}
		w.policy = new
	}
	for _, w := range works {
		m.put(w, nil)
	}
	m.replace(old, new)
	return nil
}

func (m *model) String() string {
	s := fmt.Sprintf("%d of %d rows", len(m.rows), m.table.maxKeys)
	for _, at := range slices.SortedFunc(maps.Keys(m.rows), func(a, b pair) int { return cmp.Compare(a.policy+a.key, b.policy+b.key) }) {
		r := m.rows[at]
		s += fmt.Sprintf("\n  %s/%s in shard %d under %v: %+v, %d held", at.policy, at.key, m.shardOf(at), r.policy.Limits(), r.ledger.Usage(m.now), r.ledger.Holds())
	}
	return s
}
