package algo

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
)

// format comes first, where the first encoding had the last instant, which is never
// negative.
const format = -2

// classFormat comes first if holds have classes; otherwise the encoding is that of format.
const classFormat = -3

// AppendBinary appends everything that the ledger remembers, for a file: all but
// the rules. ReadBinary is its inverse.
func (l *Ledger) AppendBinary(b []byte) []byte {
	if len(l.holds.classes) > 0 {
		b = binary.AppendVarint(b, classFormat)
		b = l.holds.appendClasses(b)
	} else {
		b = binary.AppendVarint(b, format)
	}
	b = binary.AppendVarint(b, l.last)
	b = binary.AppendUvarint(b, l.nextID)
	for i := range l.states {
		b = l.states[i].append(b)
		if r, ok := l.rules[i].(*Lending); ok {
			b = l.states[i].Levels.append(b, len(r.shares))
		}
	}
	b = binary.AppendUvarint(b, uint64(l.holds.count))
	for h := range l.holds.all() {
		b = h.append(b)
		if len(l.holds.classes) > 0 {
			b = binary.AppendUvarint(b, uint64(h.class))
		}
	}
	b = binary.AppendUvarint(b, uint64(len(l.holds.rebooked)))
	for _, r := range l.holds.rebooked {
		b = r.append(b)
	}
	return l.past.append(b)
}

// append appends the oldest first.
func (p *outcomes) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(p.list)))
	for i := range p.list {
		o := &p.list[(p.oldest+i)%len(p.list)]
		b = binary.AppendUvarint(b, o.id)
		b = binary.AppendVarint(b, o.until)
		b = binary.AppendVarint(b, o.Refunded)
		b = binary.AppendVarint(b, o.Overrun)
	}
	return b
}

func (s *State) append(b []byte) []byte {
	b = binary.AppendUvarint(b, s.A)
	b = binary.AppendUvarint(b, s.B)
	if s.Log == nil {
		return b
	}
	live := s.Log.entries[s.Log.head:]
	b = binary.AppendUvarint(b, uint64(len(live)))
	for _, e := range live {
		b = binary.AppendVarint(b, e.at)
		b = binary.AppendVarint(b, e.units)
	}
	return b
}

// append appends the levels of some classes; of full levels only that there are none.
func (v *Levels) append(b []byte, classes int) []byte {
	if v == nil {
		return binary.AppendUvarint(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(1+classes))
	b = binary.AppendVarint(b, v.at)
	b = binary.AppendVarint(b, v.all)
	b = binary.AppendVarint(b, v.lendAt)
	for _, level := range v.of[:classes] {
		b = binary.AppendVarint(b, level)
	}
	return b
}

// appendClasses appends the names of the holds' classes.
func (hs *Holds) appendClasses(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(hs.classes)))
	for i := range hs.classes {
		b = binary.AppendUvarint(b, uint64(len(hs.classes[i].name)))
		b = append(b, hs.classes[i].name...)
	}
	return b
}

func (h *Hold) append(b []byte) []byte {
	b = binary.AppendUvarint(b, h.ID)
	b = binary.AppendVarint(b, h.Units)
	b = binary.AppendVarint(b, h.Expiry)
	b = binary.AppendVarint(b, h.charged)
	return b
}

func (r *rebooking) append(b []byte) []byte {
	b = binary.AppendUvarint(b, r.upTo)
	b = binary.AppendUvarint(b, r.after)
	b = binary.AppendVarint(b, r.since)
	return binary.AppendVarint(b, r.at)
}

// ErrEncoding is returned by ReadBinary for bytes that AppendBinary did not write.
var ErrEncoding = errors.New("algo: not a ledger of these rules")

// ReadBinary makes the ledger what it was when AppendBinary wrote data, under the
// same rules. What the rules cannot have written is healed by the operations that
// meet it, as it is in a ledger that was damaged.
func (l *Ledger) ReadBinary(rules []Rule, data []byte) error {
	l.Restart(rules, 0)
	r := reader{data: data}
	first := false
	switch l.last = r.int(); l.last {
	case classFormat:
		l.holds.classes = r.classes()
		l.last = r.int()
	case format:
		l.last = r.int()
	default:
		first = true
	}
	l.nextID = r.uint()
	for i := range l.states {
		s := State{A: r.uint(), B: r.uint()}
		if _, ok := rules[i].(*SlidingLog); ok {
			s.Log = r.log()
		}
		if rule, ok := rules[i].(*Lending); ok {
			s.Levels = r.levels(rule)
		}
		l.states[i] = s
	}
	if first {
		l.holds = r.firstHolds(len(rules))
	} else {
		l.holds = r.holds(l.holds.classes)
		l.holds.rebooked = r.rebookings(len(rules), l.holds.count)
		l.past = r.outcomes()
	}
	if n := len(l.holds.byID); n > 0 {
		l.nextID = max(l.nextID, l.holds.byID[n-1].id)
	}
	if r.bad || len(r.data) > 0 {
		return ErrEncoding
	}
	return nil
}

// A reader takes integers from the front of data. Once it met something wrong, it
// returns zeros.
type reader struct {
	data []byte
	bad  bool
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.data)
	if n <= 0 || r.bad {
		r.bad = true
		return 0
	}
	r.data = r.data[n:]
	return v
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.data)
	if n <= 0 || r.bad {
		r.bad = true
		return 0
	}
	r.data = r.data[n:]
	return v
}

// count reads how many of something follow, at most so many, and no more than
// there are bytes for.
func (r *reader) count(most int) int {
	n := r.uint()
	if n > uint64(most) || n > uint64(len(r.data)) {
		r.bad = true
		return 0
	}
	return int(n)
}

// maxLogEntries bounds the entries of a log that is read.
const maxLogEntries = 1 << 16

func (r *reader) log() *Log {
	g := &Log{}
	for range r.count(maxLogEntries) { // more than the rule's units if it was lowered
		e := entry{at: r.int(), units: r.int()}
		if n := len(g.entries); e.units <= 0 || e.at != inRange(e.at) || n > 0 && g.entries[n-1].at >= e.at {
			r.bad = true
		}
		e.units = min(e.units, maxCount-g.sum) // whatever was overrun
		g.entries = append(g.entries, e)
		g.sum += e.units
	}
	return g
}

// levels reads the levels of a rule; nothing beyond what it can have written.
func (r *reader) levels(l *Lending) *Levels {
	n := r.count(1 + MaxClasses)
	if n == 0 {
		return nil
	}
	if n != 1+len(l.shares) {
		r.bad = true
		return nil
	}
	v := Levels{at: inRange(r.int()), all: min(max(r.int(), -l.debt), l.full), lendAt: max(0, r.int())}
	for i := range l.shares {
		v.of[i] = min(max(r.int(), -l.debt), l.shares[i].full)
	}
	return &v
}

// classes reads the names of holds' classes.
func (r *reader) classes() (list []heldBy) {
	for range r.count(maxHeldClasses) {
		n := r.count(len(r.data))
		if r.bad {
			return nil
		}
		list = append(list, heldBy{name: string(r.data[:n])})
		r.data = r.data[n:]
	}
	return list
}

// holds reads holds in order of expiry.
func (r *reader) holds(classes []heldBy) (hs Holds) {
	hs.classes = classes
	for range r.count(MaxHolds) {
		r.hold(&hs)
	}
	r.sortIDs(&hs)
	return hs
}

// hold reads one more hold.
func (r *reader) hold(hs *Holds) (h Hold) {
	h = Hold{ID: r.uint(), Units: r.int(), Expiry: r.int(), charged: r.int()}
	if len(hs.classes) > 0 {
		class := r.uint()
		if class > uint64(len(hs.classes)) {
			r.bad = true
			return h
		}
		h.class = uint8(class)
	}
	last := hs.last()
	if h.Units < 0 || h.Units > MaxCost || h.Expiry == gap || last != nil && !last.before(h.Expiry, h.ID) {
		r.bad = true
		return h
	}
	hs.add(h)
	return h
}

// sortIDs puts the ids in order, which were added in another.
func (r *reader) sortIDs(hs *Holds) {
	slices.SortFunc(hs.byID, func(a, b holdRef) int { return cmp.Compare(a.id, b.id) })
	for i := 1; i < len(hs.byID); i++ {
		r.bad = r.bad || hs.byID[i].id == hs.byID[i-1].id
	}
}

// rebookings reads what says when holds count as charged.
func (r *reader) rebookings(rules, holds int) (list []rebooking) {
	n := r.count(MaxRules)
	if n != 0 && (n != rules || holds == 0) {
		r.bad = true
	}
	for range n {
		list = append(list, rebooking{upTo: r.uint(), after: r.uint(), since: r.int(), at: r.int()})
	}
	return list
}

// firstHolds reads holds of the first encoding, where each says when it counts as
// charged, rule by rule. Where that is not when it was charged, windows take nothing
// back: what was used may seem more than it is, never less.
func (r *reader) firstHolds(rules int) (hs Holds) {
	rebooked := false
	for range r.count(MaxHolds) {
		h := r.hold(&hs)
		n := r.count(MaxRules)
		if n != 0 && n != rules {
			r.bad = true
		}
		for range n {
			at := r.int()
			rebooked = rebooked || at != h.charged
		}
	}
	r.sortIDs(&hs)
	if n := len(hs.byID); rebooked && n > 0 {
		none := rebooking{upTo: hs.byID[n-1].id, after: hs.byID[n-1].id}
		hs.rebooked = slices.Repeat([]rebooking{none}, rules)
	}
	return hs
}

func (r *reader) outcomes() (p outcomes) {
	for range r.count(MaxOutcomes) {
		o := outcome{id: r.uint(), until: r.int(), Settlement: Settlement{Refunded: r.int(), Overrun: r.int()}}
		p.list = append(p.list, o)
		p.until = max(p.until, o.until)
	}
	return p
}
