package algo

import (
	"encoding/binary"
	"errors"
)

// AppendBinary appends everything that the ledger remembers, for a file: all but
// the rules. ReadBinary is its inverse.
func (l *Ledger) AppendBinary(b []byte) []byte {
	b = binary.AppendVarint(b, l.last)
	b = binary.AppendUvarint(b, l.nextID)
	for i := range l.states {
		b = l.states[i].append(b)
	}
	b = binary.AppendUvarint(b, uint64(len(l.holds.list)))
	for i := range l.holds.list {
		b = l.holds.list[i].append(b)
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

func (h *Hold) append(b []byte) []byte {
	b = binary.AppendUvarint(b, h.ID)
	b = binary.AppendVarint(b, h.Units)
	b = binary.AppendVarint(b, h.Expiry)
	b = binary.AppendVarint(b, h.charged)
	b = binary.AppendUvarint(b, uint64(len(h.rebooked)))
	for _, at := range h.rebooked {
		b = binary.AppendVarint(b, at)
	}
	return b
}

// ErrEncoding is returned by ReadBinary for bytes that AppendBinary did not write.
var ErrEncoding = errors.New("algo: not a ledger of these rules")

// ReadBinary makes the ledger what it was when AppendBinary wrote data, under the
// same rules. What the rules cannot have written is healed by the operations that
// meet it, as it is in a ledger that was damaged.
func (l *Ledger) ReadBinary(rules []Rule, data []byte) error {
	l.Restart(rules, 0)
	r := reader{data: data}
	l.last = r.int()
	l.nextID = r.uint()
	for i := range l.states {
		s := State{A: r.uint(), B: r.uint()}
		if _, ok := rules[i].(*SlidingLog); ok {
			s.Log = r.log()
		}
		l.states[i] = s
	}
	for range r.count(MaxHolds) {
		h := r.hold(len(rules))
		if n := len(l.holds.list); n > 0 && l.holds.list[n-1].Expiry > h.Expiry {
			r.bad = true
		}
		l.holds.list = append(l.holds.list, h)
		l.holds.units += h.Units
	}
	if r.bad || len(r.data) > 0 {
		return ErrEncoding
	}
	return nil
}

// A reader takes numbers from the front of data. Once it met something wrong, it
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

func (r *reader) log() *Log {
	g := &Log{}
	for range r.count(MaxLogRate) { // more than the rule's units if it was lowered
		e := entry{at: r.int(), units: r.int()}
		if n := len(g.entries); e.units <= 0 || e.at != inRange(e.at) || n > 0 && g.entries[n-1].at >= e.at {
			r.bad = true
		}
		e.units = min(e.units, maxCount/MaxLogRate) // so that the sum fits, whatever was overrun
		g.entries = append(g.entries, e)
		g.sum += e.units
	}
	return g
}

func (r *reader) hold(rules int) Hold {
	h := Hold{ID: r.uint(), Units: r.int(), Expiry: r.int(), charged: r.int()}
	if h.Units < 0 || h.Units > MaxCost {
		r.bad = true
	}
	n := r.count(MaxRules)
	if n != 0 && n != rules {
		r.bad = true
	}
	for range n {
		h.rebooked = append(h.rebooked, r.int())
	}
	return h
}
