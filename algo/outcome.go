package algo

import "slices"

// outcomes are how a key's latest holds were settled, for those who settle once more
// because they got no reply. The zero value has none.
type outcomes struct {
	list   []outcome // in order of settling, but for the next to go
	oldest int       // its place once there are MaxOutcomes
	until  int64     // none is remembered longer
}

type outcome struct {
	id    uint64
	until int64 // the hold's expiry
	Settlement
}

// MaxOutcomes bounds how many outcomes of settled holds a ledger remembers. Of more
// it forgets the oldest.
const MaxOutcomes = 1_000

// rememberUnending is how long the outcome of a hold without an expiry is remembered:
// as long as a hold with one may last.
const rememberUnending = 60 * minuteNs

// add remembers an outcome, and makes room by forgetting those that are over at now.
func (p *outcomes) add(o outcome, now int64) {
	p.until = max(p.until, o.until)
	if len(p.list) == MaxOutcomes {
		p.list[p.oldest] = o
		p.oldest = (p.oldest + 1) % MaxOutcomes
		return
	}
	if len(p.list) == cap(p.list) {
		p.list = slices.DeleteFunc(p.list, func(o outcome) bool { return o.until <= now })
	}
	p.list = append(p.list, o)
}

// find searches all outcomes: it is only called for settling a hold that is not open.
func (p *outcomes) find(id uint64) *outcome {
	for i := range p.list {
		if p.list[i].id == id {
			return &p.list[i]
		}
	}
	return nil
}

func (p *outcomes) clone() outcomes {
	c := *p
	c.list = slices.Clone(p.list)
	return c
}
