package algo

import (
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

	charged  int64   // when it was charged
	rebooked []int64 // after a Set: when it was charged, rule by rule; nil before one
}

// forfeited is the charge time of units that a rule no longer counts, so that
// there is nothing to give back.
const forfeited int64 = math.MinInt64

// at returns when the hold's units were charged to rule i.
func (h *Hold) at(i int) int64 {
	if h.rebooked == nil {
		return h.charged
	}
	return h.rebooked[i]
}

// Holds are one key's open holds, in order of expiry. The zero value has none.
type Holds struct {
	list  []Hold
	units int64 // the sum of all Units
}

// MaxHolds bounds the open holds of one key. A decision on a key with holds
// costs O(holds).
const MaxHolds = 10_000

// add inserts h behind the holds that expire no later.
func (hs *Holds) add(h Hold) {
	i := len(hs.list)
	for i > 0 && hs.list[i-1].Expiry > h.Expiry {
		i--
	}
	hs.list = slices.Insert(hs.list, i, h)
	hs.units += h.Units
}

// find returns the position of a hold, or -1. Where all holds live equally
// long their ids ascend and a binary search hits; otherwise all are looked at.
func (hs *Holds) find(id uint64) int {
	i, ok := slices.BinarySearchFunc(hs.list, id, func(h Hold, id uint64) int {
		if h.ID < id {
			return -1
		}
		if h.ID > id {
			return 1
		}
		return 0
	})
	if ok {
		return i
	}
	return slices.IndexFunc(hs.list, func(h Hold) bool { return h.ID == id })
}

func (hs *Holds) remove(i int) {
	hs.units -= hs.list[i].Units
	hs.list = slices.Delete(hs.list, i, i+1)
}

// expired counts the holds that are over at now; they come first.
func (hs *Holds) expired(now int64) int {
	n := 0
	for n < len(hs.list) && hs.list[n].Expiry <= now {
		n++
	}
	return n
}

// drop removes the first n holds.
func (hs *Holds) drop(n int) {
	for i := range n {
		hs.units -= hs.list[i].Units
	}
	hs.list = slices.Delete(hs.list, 0, n)
}

func (hs *Holds) clone() Holds {
	return Holds{list: slices.Clone(hs.list), units: hs.units}
}
