package algo

import (
	"iter"
	"math"
	"slices"
)

// A Hold is a reservation that has been charged and not yet settled. Its units
// occupy room until it is settled or expires, whatever time passes: that is
// what lets a refund be exact without ever granting the same room twice.
type Hold struct {
	ID     uint64
	Units  int64
	Expiry int64 // the instant at which it counts as used whole; Never = it does not expire

	charged int64 // when it was charged
	class   uint8 // one more than its class's place in Holds.classes; 0 = it has none
}

// Holds are ordered by expiry, and by id where that is equal.

func (h *Hold) before(expiry int64, id uint64) bool {
	return h.Expiry < expiry || h.Expiry == expiry && h.ID < id
}

func (h *Hold) after(expiry int64, id uint64) bool {
	return h.Expiry > expiry || h.Expiry == expiry && h.ID > id
}

// forfeited is the charge time of units that a rule no longer counts, so that
// there is nothing to give back.
const forfeited int64 = math.MinInt64

// Holds are one key's open holds. The zero value has none.
//
// They are found by expiry, as the first to end is looked for by every decision,
// and by id, to be settled. By expiry they are in a B-tree of two levels: chunks of
// at most maxChunk holds, none of them empty. By id they are in one slice, to which
// new ones are appended because ids ascend; a hold that has gone leaves a gap, and
// gaps are closed when there are more of them than holds. So every operation costs
// a binary search and moves a few kilobytes at most, however many holds there are.
type Holds struct {
	chunks [][]Hold
	byID   []holdRef
	count  int
	units  int64 // the sum of all Units

	rebooked []rebooking // by rule; nil = every hold counts as charged when it was

	classes  []heldBy // the classes of holds; it grows until there is no hold
	charging charging
}

// heldBy is how many units a class holds.
type heldBy struct {
	name  string
	units int64
}

// charging is what the operation at hand charges. The Ledger sets it before it calls rules.
type charging struct {
	class  string // "" if it has none
	hold   bool   // the units are to be held
	ending int64  // the units of the hold that is being settled
}

// classOf returns Hold.class for a class.
func (hs *Holds) classOf(name string) uint8 {
	if name == "" {
		return 0
	}
	for i := range hs.classes {
		if hs.classes[i].name == name {
			return uint8(i + 1)
		}
	}
	if len(hs.classes) == maxHeldClasses { // so many were renamed while holds are open
		return 0
	}
	hs.classes = append(hs.classes, heldBy{name: name})
	return uint8(len(hs.classes))
}

// maxHeldClasses bounds Holds.classes.
const maxHeldClasses = 64

// className returns the class of a hold.
func (hs *Holds) className(h *Hold) string {
	if h.class == 0 {
		return ""
	}
	return hs.classes[h.class-1].name
}

// holdRef is where a hold is among the others, by expiry.
type holdRef struct {
	id     uint64
	expiry int64 // gap if the hold has gone
}

const gap int64 = math.MinInt64

// MaxHolds bounds the open holds of one key.
const MaxHolds = 10_000

// maxChunk is how many holds a chunk may have: 2 KiB.
const maxChunk = 64

// add inserts h, whose id must be greater than every id before.
func (hs *Holds) add(h Hold) {
	hs.insert(h)
	hs.byID = append(hs.byID, holdRef{h.ID, h.Expiry})
}

// insert puts h in its place by expiry.
func (hs *Holds) insert(h Hold) {
	hs.count++
	hs.units += h.Units
	if h.class > 0 {
		hs.classes[h.class-1].units += h.Units
	}
	if len(hs.chunks) == 0 {
		hs.chunks = append(hs.chunks, []Hold{h})
		return
	}
	i, j := hs.seek(h.Expiry, h.ID)
	c := slices.Insert(hs.chunks[i], j, h)
	hs.chunks[i] = c
	if len(c) <= maxChunk {
		return
	}
	half := len(c) / 2
	if i == len(hs.chunks)-1 && j == len(c)-1 {
		half = len(c) - 1 // most come in order of expiry: leave full chunks behind
	}
	hs.chunks = slices.Insert(hs.chunks, i+1, slices.Clone(c[half:]))
	hs.chunks[i] = c[:half]
}

// seek returns the chunk and the place in it where a hold is or belongs. There must be
// a chunk. It is written out because with package slices it costs twice as much.
func (hs *Holds) seek(expiry int64, id uint64) (i, j int) {
	low, high := 1, len(hs.chunks) // the first chunk has what comes before all others
	for low < high {
		if mid := (low + high) / 2; hs.chunks[mid][0].after(expiry, id) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	c := hs.chunks[low-1]
	start, end := 0, len(c)
	for start < end {
		if mid := (start + end) / 2; c[mid].before(expiry, id) {
			start = mid + 1
		} else {
			end = mid
		}
	}
	return low - 1, start
}

// delete takes a hold out of its place by expiry.
func (hs *Holds) delete(h Hold) {
	i, j := hs.seek(h.Expiry, h.ID)
	hs.count--
	hs.units -= hs.chunks[i][j].Units
	if h.class > 0 {
		hs.classes[h.class-1].units -= h.Units
	}
	if hs.chunks[i] = slices.Delete(hs.chunks[i], j, j+1); len(hs.chunks[i]) == 0 {
		hs.chunks = slices.Delete(hs.chunks, i, i+1)
	}
}

// find returns a hold, or false if there is none of that id.
func (hs *Holds) find(id uint64) (Hold, bool) {
	ref := hs.ref(id)
	if ref == nil {
		return Hold{}, false
	}
	i, j := hs.seek(ref.expiry, id)
	return hs.chunks[i][j], true
}

func (hs *Holds) ref(id uint64) *holdRef {
	low, high := 0, len(hs.byID)
	for low < high {
		if mid := (low + high) / 2; hs.byID[mid].id < id {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == len(hs.byID) || hs.byID[low].id != id || hs.byID[low].expiry == gap {
		return nil
	}
	return &hs.byID[low]
}

// remove ends a hold that is there.
func (hs *Holds) remove(h Hold) {
	hs.delete(h)
	hs.ref(h.ID).expiry = gap
	switch n := len(hs.byID); {
	case hs.count == 0:
		hs.byID, hs.rebooked, hs.classes = hs.byID[:0], nil, hs.classes[:0]
	case n > 2*hs.count+maxChunk:
		hs.byID = slices.DeleteFunc(hs.byID, func(r holdRef) bool { return r.expiry == gap })
	}
}

// forgetIDs lets the ids beyond after be given again. None of their holds may be
// there.
func (hs *Holds) forgetIDs(after uint64) {
	n := len(hs.byID)
	for n > 0 && hs.byID[n-1].id > after {
		n--
	}
	hs.byID = hs.byID[:n]
}

// move gives a hold that is there another expiry.
func (hs *Holds) move(h Hold, expiry int64) {
	hs.delete(h)
	hs.ref(h.ID).expiry = expiry
	h.Expiry = expiry
	hs.insert(h)
}

// first returns the hold that expires first, or nil.
func (hs *Holds) first() *Hold {
	if len(hs.chunks) == 0 {
		return nil
	}
	return &hs.chunks[0][0]
}

// last returns the hold that expires last, or nil.
func (hs *Holds) last() *Hold {
	if len(hs.chunks) == 0 {
		return nil
	}
	c := hs.chunks[len(hs.chunks)-1]
	return &c[len(c)-1]
}

// anyOver says whether some hold is over at now.
func (hs *Holds) anyOver(now int64) bool {
	h := hs.first()
	return h != nil && h.Expiry <= now
}

// anyOpen says whether some hold is not over at now.
func (hs *Holds) anyOpen(now int64) bool {
	h := hs.last()
	return h != nil && h.Expiry > now
}

// openUnits returns the units of the holds that are not over at now.
func (hs *Holds) openUnits(now int64) int64 {
	sum := hs.units
	if hs.anyOver(now) {
		for h := range hs.all() {
			if h.Expiry > now {
				break
			}
			sum -= h.Units
		}
	}
	return sum
}

// all yields the holds in order of expiry.
func (hs *Holds) all() iter.Seq[*Hold] {
	return func(yield func(*Hold) bool) {
		for _, c := range hs.chunks {
			for i := range c {
				if !yield(&c[i]) {
					return
				}
			}
		}
	}
}

// drop removes the holds that are over at now.
func (hs *Holds) drop(now int64) {
	for hs.anyOver(now) {
		hs.remove(*hs.first())
	}
}

func (hs *Holds) clone() Holds {
	c := *hs
	c.chunks = make([][]Hold, len(hs.chunks))
	for i := range hs.chunks {
		c.chunks[i] = slices.Clone(hs.chunks[i])
	}
	c.byID = slices.Clone(hs.byID)
	c.rebooked = slices.Clone(hs.rebooked)
	c.classes = slices.Clone(hs.classes)
	return c
}

// A rebooking is what is left of the times at which holds were charged to a rule after
// other rules were put in force and the units in use were booked anew. It says the
// same of every hold, so that changing the rules looks at none of them.
type rebooking struct {
	upTo  uint64 // it is about the holds up to this id; 0 = about none
	after uint64 // of these, those up to this id are forfeited,
	since int64  // and those that were charged before this instant,
	at    int64  // and the others count as charged at this one
}

// chargedAt returns when a hold's units were charged to rule i.
func (hs *Holds) chargedAt(h *Hold, i int) int64 {
	if hs.rebooked == nil {
		return h.charged
	}
	switch r := &hs.rebooked[i]; {
	case h.ID > r.upTo:
		return h.charged
	case h.ID <= r.after || h.charged < r.since:
		return forfeited
	default:
		return r.at
	}
}

// What rules say of the charges that they still count; see Rule.countsSince.
const (
	countsAll  int64 = math.MinInt64
	countsNone int64 = Never
)

// again returns the rebooking of the holds up to an id that were rebooked as r says,
// now that those charged since an instant are booked anew at now.
func (r rebooking) again(upTo uint64, since, now int64) rebooking {
	next := rebooking{upTo: upTo, since: since, at: now}
	switch {
	case since == countsNone: // all so far are forfeited by their ids; later ones are not
		next.after, next.since = upTo, countsAll
	case since == countsAll || r.upTo == 0:
	case r.at >= since: // what was left then is left now, as is all that came after
		next.after, next.since = r.after, r.since
	default:
		next.after = r.upTo
	}
	return next
}
