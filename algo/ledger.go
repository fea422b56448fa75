package algo

import "slices"

// Ledger is everything that is remembered of one key under one policy: a state
// for each rule, and the open holds. It decides for all rules at once, all or
// nothing. It is not safe for concurrent use; its owner locks.
//
// Every operation takes now and acts at the greatest now it was ever given, so
// that time never goes back.
type Ledger struct {
	rules  []Rule
	states []State
	holds  Holds
	ended  []Hold // as they were before EndHoldsBy, for Rollback
	past   outcomes
	last   int64
	nextID uint64
}

// Verdict is the outcome for one charge.
type Verdict struct {
	OK        bool
	TooCostly bool  // the cost exceeds what By can ever admit
	By        uint8 // the rule that refused; if none did, the tightest
	Limit     int64 // By's capacity
	Remaining int64 // By's, after the charge
	RetryAt   int64 // when the same charge is admitted if nothing else happens; now if it was, Never if it cannot be
	ResetAt   int64 // when By is as if unused
	Held      bool  // refused, not as too costly, and an unexpired hold is open: its end may make room before RetryAt
	Crowded   bool  // refused only because MaxHolds are open
}

// Settlement is the outcome of ending a hold.
type Settlement struct {
	Refunded int64 // units given back; for windows, only into one that was charged and still counts
	Overrun  int64 // units used beyond the hold, now owed
	Late     bool  // the hold had expired, or its outcome was forgotten: nothing changed
}

// MaxRules bounds the rules of one ledger.
const MaxRules = 32

// NewLedger returns the ledger of a key that was never used, in a limiter that
// was started at epoch. It keeps rules.
func NewLedger(rules []Rule, epoch int64) *Ledger {
	l := &Ledger{}
	l.Restart(rules, epoch)
	return l
}

// Restart makes the ledger what NewLedger would return, and reuses its memory.
func (l *Ledger) Restart(rules []Rule, epoch int64) {
	*l = Ledger{rules: rules, states: l.states[:0]}
	for _, r := range rules {
		l.states = append(l.states, r.Fresh(epoch))
	}
}

// Rules returns the rules in force. The caller must not change them.
func (l *Ledger) Rules() []Rule { return l.rules }

// State and SetState give access to rule i's state, for an owner that keeps it
// in a word of its own while there are no holds.
func (l *Ledger) State(i int) State { return l.states[i] }

// SetState replaces rule i's state.
func (l *Ledger) SetState(i int, s State) {
	if _, ok := l.rules[i].(*SlidingLog); ok && s.Log == nil {
		s.Log = &Log{}
	}
	l.states[i] = s
}

// SetClass makes the operations that follow charges of a class; "" means none. Settle goes by the
// class of the hold.
func (l *Ledger) SetClass(name string) { l.holds.charging.class = name }

// Last returns the greatest now of all operations and SeenAt.
func (l *Ledger) Last() int64 { return l.last }

// SeenAt advances the ledger to now, for an owner that has decided without the ledger at
// that instant or later.
func (l *Ledger) SeenAt(now int64) { l.last = max(l.last, now) }

// Holds returns the number of open holds, expired ones that no operation has
// met yet included.
func (l *Ledger) Holds() int { return l.holds.count }

// HasHolds says whether a hold is open at now, which has not expired.
func (l *Ledger) HasHolds(now int64) bool {
	return l.holds.anyOpen(max(now, l.last))
}

// HoldExpiry returns when a hold expires, or false if it was settled or an
// operation has met it after its expiry. Of a hold that was settled it returns until
// when its outcome is remembered.
func (l *Ledger) HoldExpiry(id uint64) (int64, bool) {
	ref := l.holds.ref(id)
	if ref != nil {
		return ref.expiry, true
	}
	if o := l.past.find(id); o != nil {
		return o.until, true
	}
	return 0, false
}

// Remembered returns how many outcomes of settled holds are remembered.
func (l *Ledger) Remembered() int { return len(l.past.list) }

// ForgetOutcomes forgets the outcomes of settled holds.
func (l *Ledger) ForgetOutcomes() { l.past = outcomes{} }

// Outcome returns how a hold was settled, or false if it was not or that is
// forgotten.
func (l *Ledger) Outcome(now int64, id uint64) (Settlement, bool) {
	if o := l.past.find(id); o != nil && o.until > max(now, l.last) {
		return o.Settlement, true
	}
	return Settlement{}, false
}

// Clone returns an independent copy, to try out what would happen. It copies every
// hold; see Checkpoint.
func (l *Ledger) Clone() *Ledger {
	return &Ledger{rules: l.rules, states: cloneStates(l.states), holds: l.holds.clone(), past: l.past.clone(), last: l.last, nextID: l.nextID}
}

func cloneStates(states []State) []State {
	c := make([]State, len(states))
	for i := range states {
		c[i] = states[i].clone()
	}
	return c
}

// A Checkpoint is what it takes to put a ledger back as it was at an instant.
type Checkpoint struct {
	rules    []Rule
	states   []State
	rebooked []rebooking
	nextID   uint64
	ended    int
}

// Checkpoint returns the ledger as it is at now, to try something out and then to
// Rollback. Unlike Clone it looks at no hold. Until then only Take, Debit, Peek,
// Reserve, Set and EndHoldsBy, with a later instant, may be called, at that same now.
func (l *Ledger) Checkpoint(now int64) Checkpoint {
	l.advance(now)
	return Checkpoint{
		rules: l.rules, states: cloneStates(l.states), rebooked: l.holds.rebooked,
		nextID: l.nextID, ended: len(l.ended),
	}
}

// Rollback undoes everything that was done since the checkpoint.
func (l *Ledger) Rollback(c Checkpoint) {
	l.rules, l.states = c.rules, c.states
	for ; l.nextID > c.nextID; l.nextID-- {
		if h, ok := l.holds.find(l.nextID); ok {
			l.holds.remove(h)
		}
	}
	l.holds.forgetIDs(c.nextID)
	l.holds.rebooked = c.rebooked
	for _, h := range slices.Backward(l.ended[c.ended:]) {
		if now, ok := l.holds.find(h.ID); ok {
			l.holds.move(now, h.Expiry)
		}
	}
	l.ended = l.ended[:c.ended]
}

// advance moves the ledger to now or, if that is past, to the last now. Holds
// that have expired become part of the states: expiry is commit of the whole.
func (l *Ledger) advance(now int64) int64 {
	now = max(now, l.last)
	l.last = now
	if l.holds.anyOver(now) {
		l.fold(now)
		l.holds.drop(now)
	}
	if len(l.past.list) > 0 && l.past.until <= now {
		l.past = outcomes{}
	}
	return now
}

// Take charges cost units to every rule, or refuses and charges none. A cost
// of 0 is admitted and changes nothing.
func (l *Ledger) Take(now, cost int64) Verdict {
	now = l.advance(now)
	if g, ok := l.rules[0].(*GCRA); ok && len(l.rules) == 1 && cost > 0 { // most ledgers, most of the time
		if v, ok := g.take(&l.states[0], &l.holds, now, cost); ok {
			return v
		}
	}
	if v := l.judge(now, cost); !v.OK {
		l.fold(now)
		return v
	}
	l.charge(now, cost)
	return l.tightest(now)
}

// Recall is for a charge that Take or, if it is to be held, Reserve has refused at now. If the level of its
// class in a Lending covers it, and only rules refuse whose units return gradually, nobody borrows until
// they have room for it; see Lending. It returns false if that changes nothing. Whether a refused call may
// change anything is up to the ledger's owner.
func (l *Ledger) Recall(now, cost int64, hold bool) bool {
	i := slices.IndexFunc(l.rules, func(r Rule) bool { _, lends := r.(*Lending); return lends })
	if i < 0 || len(l.rules) == 1 || cost == 0 {
		return false
	}
	now = l.advance(now)
	l.holds.charging.hold = hold
	defer func() { l.holds.charging.hold = false }()
	if !l.recallHelps(now, cost) {
		return false
	}
	v := l.judge(now, cost)
	if v.OK || v.RetryAt == Never {
		return false
	}
	return l.rules[i].(*Lending).recall(&l.states[i], &l.holds, now, cost, v.RetryAt)
}

// recallHelps says whether every rule that refuses a charge has room for it sooner if less is charged until then.
func (l *Ledger) recallHelps(now, cost int64) bool {
	for i, r := range l.rules {
		if !returnsGradually(r) && !r.admits(&l.states[i], &l.holds, now, cost) {
			return false
		}
	}
	return true
}

// returnsGradually says whether the units of a rule return one by one, a time after they were used. Those of
// windows return all at once at the end, whoever has used them, what a paced class may use depends on the clock
// as well, and slots are free when holds end; a Lending has levels of its own.
func returnsGradually(r Rule) bool {
	switch r.(type) {
	case *GCRA, *Sliding, *SlidingLog:
		return true
	}
	return false
}

// Debit charges cost units to every rule whether they fit or not, and returns the
// verdict of the tightest rule after that. Slots cannot be owed: such a rule is unchanged.
func (l *Ledger) Debit(now, cost int64) Verdict {
	now = l.advance(now)
	l.charge(now, cost)
	return l.tightest(now)
}

// fold adds expired holds to the states, and replaces a damaged state with the one that its
// rule assumed for it: a refusal, which changes nothing else, would otherwise keep it.
func (l *Ledger) fold(now int64) {
	for i, r := range l.rules {
		r.fold(&l.states[i], &l.holds, now)
	}
}

func (l *Ledger) charge(now, cost int64) {
	if cost == 0 {
		return
	}
	for i, r := range l.rules {
		r.charge(&l.states[i], &l.holds, now, cost)
	}
}

// Peek says what Take would, without the charge. It changes nothing.
func (l *Ledger) Peek(now, cost int64) Verdict {
	now = max(now, l.last)
	if v := l.judge(now, cost); !v.OK {
		return v
	}
	return l.tightest(now)
}

// judge evaluates every rule. If one refuses, it returns the refusal with the longest wait, until all
// admit the charge.
func (l *Ledger) judge(now, cost int64) Verdict {
	v := Verdict{OK: true}
	if cost == 0 {
		return v
	}
	for i, r := range l.rules {
		if r.admits(&l.states[i], &l.holds, now, cost) {
			continue
		}
		at := r.retryAt(&l.states[i], &l.holds, now, cost)
		if v.OK || at > v.RetryAt || at == Never && cost > capacityOf(r, &l.holds) && !v.TooCostly {
			v = l.report(i, now)
			v.OK, v.RetryAt, v.TooCostly = false, at, cost > v.Limit
		}
	}
	if !v.OK && len(l.rules) > 1 {
		v.RetryAt = l.allAdmitFrom(v.RetryAt, cost)
	}
	v.Held = !v.OK && !v.TooCostly && l.HasHolds(now)
	return v
}

// retryRounds is how often rules are asked at most whether they still admit a charge.
const retryRounds = 4

// allAdmitFrom returns the first instant from at on at which all rules admit a charge that each admits at at or
// has admitted before. That is at, unless rules may refuse it again. If those take turns with it for
// too long, the charge is admitted at the instant returned at the earliest.
func (l *Ledger) allAdmitFrom(at, cost int64) int64 {
	for range retryRounds {
		before := at
		for i, r := range l.rules {
			if at != Never && mayRefuseAgain(r, &l.holds) && !r.admits(&l.states[i], &l.holds, at, cost) {
				at = r.retryAt(&l.states[i], &l.holds, at, cost)
			}
		}
		if at == before {
			break
		}
	}
	return at
}

// mayRefuseAgain says whether a rule can refuse a charge later than it would have admitted it, if nothing
// else happens: what a class can take beside holds falls as the levels of the others fill up, and the share that a
// paced class has of a month is nothing when the next one begins.
func mayRefuseAgain(r Rule, hs *Holds) bool {
	switch r := r.(type) {
	case *Lending:
		return hs.count > 0
	case *Paced:
		return r.paces(hs)
	}
	return false
}

// tightest reports the rule with the least remaining, of several the one that
// resets last.
func (l *Ledger) tightest(now int64) Verdict {
	best := l.report(0, now)
	for i := 1; i < len(l.rules); i++ {
		v := l.report(i, now)
		if v.Remaining < best.Remaining || v.Remaining == best.Remaining && v.ResetAt > best.ResetAt {
			best = v
		}
	}
	return best
}

func (l *Ledger) report(i int, now int64) Verdict {
	r, s := l.rules[i], &l.states[i]
	return Verdict{
		OK:        true,
		By:        uint8(i),
		Limit:     capacityOf(r, &l.holds),
		Remaining: r.remaining(s, &l.holds, now),
		RetryAt:   now,
		ResetAt:   r.resetAt(s, &l.holds, now),
	}
}

// Reserve is Take, and then holds the units until they are settled or expiry
// has come. With MaxHolds open it refuses until the first expires, By being
// the tightest rule.
func (l *Ledger) Reserve(now, cost, expiry int64) (id uint64, v Verdict) {
	now = l.advance(now)
	l.holds.charging.hold = true
	v = l.judge(now, cost)
	l.holds.charging.hold = false
	if !v.OK {
		l.fold(now)
		return 0, v
	}
	if l.holds.count >= MaxHolds {
		v = l.tightest(now)
		v.OK, v.RetryAt, v.Held, v.Crowded = false, l.holds.first().Expiry, true, true
		return 0, v
	}
	l.charge(now, cost)
	l.nextID++
	class := l.holds.classOf(l.holds.charging.class)
	l.holds.add(Hold{ID: l.nextID, Units: cost, Expiry: max(expiry, gap+1), charged: now, class: class})
	return l.nextID, l.tightest(now)
}

// Settle ends a hold of which used units were used: the rest is given back,
// more than was held is owed. Whoever settles a hold again before its expiry, because
// the reply was lost, gets the outcome of the first time, whatever was used; see
// MaxOutcomes.
func (l *Ledger) Settle(now int64, id uint64, used int64) Settlement {
	now = l.advance(now)
	h, ok := l.holds.find(id)
	if !ok {
		if out, ok := l.Outcome(now, id); ok {
			return out
		}
		return Settlement{Late: true}
	}
	l.ended = nil
	over, back := max(0, used-h.Units), max(0, h.Units-used)
	before := l.holds.charging
	l.holds.charging = charging{class: l.holds.className(&h), ending: h.Units}
	defer func() { l.holds.charging = before }()
	var out Settlement
	for i, r := range l.rules {
		if _, held := r.(*Slots); !held { // slots are freed whole, and cannot be overrun
			out.Overrun = over
		}
		out.Refunded = max(out.Refunded, r.refund(&l.states[i], &l.holds, l.holds.chargedAt(&h, i), now, back))
		if over > 0 {
			r.charge(&l.states[i], &l.holds, now, over)
		}
	}
	l.holds.remove(h)
	until := h.Expiry
	if until == Never {
		until = now + rememberUnending
	}
	l.past.add(outcome{id, until, out}, now)
	return out
}

// Renew moves a hold's expiry, at most back to now: what was held until now was
// not over before. It returns false if the hold is over.
func (l *Ledger) Renew(now int64, id uint64, expiry int64) bool {
	now = l.advance(now)
	h, ok := l.holds.find(id)
	if !ok {
		return false
	}
	l.ended = nil
	l.holds.move(h, max(expiry, now))
	return true
}

// Reset forgets what was used. Holds stay, and what they hold stays in use.
func (l *Ledger) Reset(now int64) {
	now = l.advance(now)
	for i, r := range l.rules {
		r.reset(&l.states[i], &l.holds, i, now)
	}
}

// Set puts other rules in force and keeps the units in use. Rule i of the new
// ones continues rule from[i] of the old ones, or starts afresh at now if that is
// negative. If the units in use cannot be represented, Set returns a *SetError
// and changes nothing.
func (l *Ledger) Set(now int64, rules []Rule, from []int) error {
	now = l.advance(now)
	states := make([]State, len(rules))
	booked := make([]bool, len(rules))
	for i, r := range rules {
		if from[i] < 0 {
			states[i] = r.Fresh(now)
			continue
		}
		var err error
		states[i], booked[i], err = convert(l.rules[from[i]], r, &l.states[from[i]], &l.holds, now)
		if err != nil {
			return &SetError{Rule: i, Err: err}
		}
	}
	for i, r := range rules {
		if g, ok := r.(*GCRA); ok && mulSat(uint64(l.holds.units), g.unit) > g.most {
			return &SetError{Rule: i, Err: g.overfull(l.holds.units)}
		}
	}
	l.rebook(now, from, booked)
	l.rules, l.states = rules, states
	return nil
}

// A SetError says which of the new rules cannot represent the units in use.
type SetError struct {
	Rule int
	Err  error
}

func (e *SetError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *SetError) Unwrap() error { return e.Err }

// EndHoldsBy lets no open hold last beyond at. It is for an owner that puts
// rules in force under which holds must expire.
func (l *Ledger) EndHoldsBy(at int64) {
	for h := l.holds.last(); h != nil && h.Expiry > at; h = l.holds.last() {
		l.ended = append(l.ended, *h)
		l.holds.move(*h, at)
	}
}

// rebook notes when the units of the open holds were charged to each of the new
// rules: now where they were booked anew, never where they no longer count.
func (l *Ledger) rebook(now int64, from []int, booked []bool) {
	if l.holds.count == 0 {
		return
	}
	next, changed := make([]rebooking, len(from)), l.holds.rebooked != nil
	for i, f := range from {
		var r rebooking
		if f >= 0 && l.holds.rebooked != nil {
			r = l.holds.rebooked[f]
		}
		switch {
		case f < 0:
			r = r.again(l.nextID, countsNone, now)
		case booked[i]:
			r = r.again(l.nextID, l.rules[f].countsSince(&l.states[f], now), now)
		}
		next[i] = r
		changed = changed || r.upTo > 0
	}
	if changed {
		l.holds.rebooked = next
	}
}

// Usage returns the limit status of the rule with the largest share in use at now,
// without open holds.
func (l *Ledger) Usage(now int64) Usage {
	now = max(now, l.last)
	var most Usage
	for i, r := range l.rules {
		most.Join(UsageOf(r, l.states[i], now))
	}
	return most
}

// Advance makes holds that are over at now part of the states, as every operation
// does first, and returns how many are open.
func (l *Ledger) Advance(now int64) (open int) {
	l.advance(now)
	return l.holds.count
}

// Unused says whether the ledger equals one that was never used, so that it may
// be forgotten without forgiving anything.
func (l *Ledger) Unused(now int64) bool {
	now = max(now, l.last)
	if l.holds.anyOpen(now) {
		return false
	}
	for i, r := range l.rules {
		if r.resetAt(&l.states[i], &l.holds, now) > now {
			return false
		}
	}
	return true
}
