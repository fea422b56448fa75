package storetest

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/compiled"
)

// A step of a random case. What it depends on at run time, such as which
// reservations are open, it names by a number that is reduced to what there is.
type step struct {
	do action

	batch weir.Batch // of take, ask and reserve; of renew, only the time to live

	which   int   // of settle and renew: how many reservations ago
	uses    []int // of settle: how much of each charge was used, see use
	foreign bool  // of settle and renew: with another's key
	keep    bool  // of settle: the receipts, to use them again
	pass    time.Duration
	edge    edge // of reach

	history, from, to int  // of set: from one of the versions that were in force
	again             bool // of set: with equal policies that are other objects
}

type action uint8

const (
	take    action = iota // a charge, by Take
	ask                   // a batch that is not about reservations
	reserve               // a batch of ReserveAll
	settle
	renew
	set
	pass  // the clock goes on, or back
	reach // the clock goes to where something is due, or just before
)

type edge struct {
	of     int // 0: the last retry, 1: the last reset, 2: the last expiry
	before bool
}

var edgeNames = []string{"last retry", "last reset", "last expiry"}

func (s step) GoString() string {
	switch s.do {
	case take:
		return callText("take", s.batch.Charges[0])
	case ask, reserve:
		return batchText(&s.batch)
	case settle:
		return fmt.Sprintf("settle reservation -%d, uses %v, foreign %v, keep %v", s.which, s.uses, s.foreign, s.keep)
	case renew:
		return fmt.Sprintf("renew reservation -%d for %v, foreign %v", s.which, s.batch.TTL, s.foreign)
	case set:
		return fmt.Sprintf("set history %d from in force #%d to version %d, equals %v", s.history, s.from, s.to, s.again)
	case pass:
		return fmt.Sprintf("pass %v", s.pass)
	}
	if s.edge.before {
		return "go to just before the " + edgeNames[s.edge.of]
	}
	return "go to the " + edgeNames[s.edge.of]
}

// step draws what to do next. The order of cases is that of simplicity, which
// is the order in which failing cases shrink.
func (d drawer) step(w *world) step {
	switch n := d.upTo(22, "what"); {
	case n < 5:
		b := weir.Batch{Op: weir.TakeEach, Charges: d.charges(w, 1)}
		if b.Charges[0].Policy.ReserveOnly() && !d.oneIn(8, "take slots") {
			return d.reserve(w, b.Charges)
		}
		return step{do: take, batch: b}
	case n < 7:
		return step{do: pass, pass: d.interval(w, "time")}
	case n < 9:
		return step{do: reach, edge: edge{d.upTo(2, "edge"), d.oneIn(2, "before")}}
	case n < 12:
		return d.reserve(w, d.charges(w, 2))
	case n < 15:
		return step{
			do: settle, which: d.upTo(5, "which"), uses: []int{d.upTo(3, "use"), d.upTo(3, "use")},
			foreign: d.oneIn(8, "foreign"), keep: d.oneIn(4, "keep"),
		}
	case n == 15:
		return step{do: renew, which: d.upTo(3, "which"), batch: weir.Batch{TTL: d.ttl(w)}, foreign: d.oneIn(8, "foreign")}
	case n < 18:
		return d.batch(w)
	case n == 18 && d.store.meets(TimeStandsStill):
		return step{do: pass, pass: -d.interval(w, "time")}
	case n == 19 && !w.initial: // whether a reset refills what never was full is nobody's demand
		return step{do: ask, batch: weir.Batch{Op: weir.ResetEach, Charges: d.charges(w, 1)}}
	case n == 20:
		return d.batch(w)
	case n >= 21 && w.changes:
		return step{
			do: set, history: d.upTo(len(w.histories)-1, "history"), from: d.upTo(3, "from"), to: d.upTo(2, "to"), again: d.oneIn(2, "equals"),
		}
	}
	return step{do: ask, batch: weir.Batch{Op: weir.PeekEach, Charges: d.charges(w, 1)}}
}

func (d drawer) reserve(w *world, charges []weir.Charge) step {
	for i := range charges {
		charges[i].Cost = max(1, charges[i].Cost) // a hold of nothing has its own test
	}
	return step{do: reserve, batch: weir.Batch{Op: weir.ReserveAll, TTL: d.ttl(w), Charges: charges, Used: d.used(charges)}}
}

// used draws what was used before a batch; mostly nothing.
func (d drawer) used(charges []weir.Charge) []int64 {
	if !d.store.meets(ChargesUsed) || !d.oneIn(4, "used") {
		return nil
	}
	used := make([]int64, len(charges))
	for i, c := range charges {
		if !c.Policy.ReserveOnly() || d.oneIn(8, "use slots") {
			used[i] = int64(d.upTo(int(min(c.Policy.Capacity(), 1000))+2, "units used"))
		}
	}
	return used
}

func (d drawer) batch(w *world) step {
	b := weir.Batch{Op: sample(d, "op", weir.TakeEach, weir.TakeAll, weir.PeekEach, weir.DebitEach, weir.DebitEach), Charges: d.charges(w, 3)}
	if b.Op == weir.DebitEach {
		for i := range b.Charges {
			b.Charges[i].Cost *= 1 + int64(d.upTo(3, "times"))
		}
	}
	if (b.Op == weir.TakeEach || b.Op == weir.DebitEach) && !d.store.meets(WholeErrors) {
		for i := range b.Charges {
			b.Charges[i].Key = keys[i]
		}
	}
	if b.Op == weir.TakeEach || b.Op == weir.TakeAll {
		b.Used = d.used(b.Charges)
	}
	return step{do: ask, batch: b}
}

var keys = []string{"a", "b", ""}

func (d drawer) charges(w *world, most int) []weir.Charge {
	var charges []weir.Charge
	for range 1 + d.upTo(most-1, "charges") {
		f := sample(d, "history", w.histories...)
		p := f.versions[0]
		if w.changes && d.oneIn(3, "other limits") {
			p = sample(d, "limits", append(f.versions[1:len(f.versions):len(f.versions)], f.overrides...)...)
		}
		if d.oneIn(4, "equal") {
			p, _ = p.With(p.Limits()...) // an equal one, as another process has
		}
		if names := p.ClassNames(); len(names) > 0 && !d.oneIn(4, "no class") {
			p, _ = p.Class(sample(d, "class", names...))
		}
		charges = append(charges, charge(p, sample(d, "key", keys...), d.cost(p.Capacity())))
	}
	return charges
}

func (d drawer) cost(capacity int64) int64 {
	capacity = min(capacity, 1000)
	switch d.upTo(9, "cost") {
	case 6:
		return capacity
	case 7:
		return int64(d.upTo(int(capacity), "cost"))
	case 8:
		return capacity + 1
	case 9:
		return 0
	}
	return 1
}

func (d drawer) ttl(w *world) time.Duration {
	switch n := d.upTo(7, "ttl"); {
	case n < 5:
		return min(compiled.MaxTTL, time.Duration(1+d.upTo(9, "times"))*d.interval(w, "ttl"))
	case n == 5:
		return weir.NoExpiry // an error but for slots
	case n == 6 && w.grain != coarseGrain:
		return 0
	}
	return compiled.MaxTTL
}

// use is how much of units was used.
func use(how int, units int64) int64 {
	switch how {
	case 0:
		return 0
	case 1:
		return units
	case 2:
		return units / 2
	}
	return units + 3
}
