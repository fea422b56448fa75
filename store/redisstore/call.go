package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/compiled"
)

// A call is one call of do.lua, or of small.lua where that suffices: an operation on charges whose
// keys are all on one server.
type call struct {
	op      string
	ttl     int64 // µs that holds live; -1 = until they are settled
	charges []charge

	// The reply.
	now      int64 // µs, the server's
	outcomes []outcome
	err      error

	until weir.Instant            // when the caller leaves
	since map[*compiledLimits]int // the version after which the script needs the changes of a set
	at    []int64                 // µs: the instants for which calendar boundaries are sent, of which the first is now
	newer int                     // how often a row had a later version
	tries int
	small bool    // sent to small.lua
	rows  [][]int // if small: indices of the charges by row
	large bool    // must be sent to do.lua
	holds bool    // needs the keys of its rows' holds
}

// A charge is an operation on one row.
type charge struct {
	key  string
	n    *compiledLimits
	cost int64
	id   [16]byte // of a hold
	at   int64    // µs: when the units were charged, for a refund
	used int64    // units to debit before the decision, whether they fit or not
}

// An outcome is the script's result for a charge. For decisions the six values are: 1 if
// admitted, index of the limit, remaining, retry after and reset after in µs, and the reason of
// a refusal, with the bit outcomeHeld if holds are open.
type outcome [6]int64

const outcomeHeld = 4

// The operations.
const (
	opEach   = "each"
	opAll    = "all"
	opHold   = "hold"
	opHolds  = "holds" // each by itself; see combine.go
	opPeek   = "peek"
	opDebit  = "debit"
	opSettle = "settle"
	opRenew  = "renew"
	opReset  = "reset"
	opRefund = "refund"
)

// The status with which a reply of do.lua begins.
const (
	statusDone = iota
	statusNewer
	statusOlder
	statusCalendar
	statusOverfull
	statusHolds
)

// maxTries bounds how often a call is sent because the script requested more data. Such a
// script has changed nothing.
const maxTries = 8

var errOverfull = errors.New("the units in use exceed what these limits can represent")

// encode returns the script to call, with its keys and arguments.
func (c *call) encode(s *Store) (to *script, keys, args []string) {
	if c.small = !c.large && c.isSmall(); c.small {
		keys, args = c.encodeSmall(s)
		return smallScript, keys, args
	}
	keys, args = c.encodeAny(s)
	return doScript, keys, args
}

// noteHolds records which rows have open holds.
func (c *call) noteHolds(s *Store) {
	if !c.decides() {
		return
	}
	for i, o := range c.outcomes {
		s.held.note(c.charges[i].key, o[5]&outcomeHeld != 0)
	}
}

// decides says whether the outcomes are decisions.
func (c *call) decides() bool {
	return c.spends() || c.op == opHold || c.op == opHolds || c.op == opPeek
}

// names says whether each charge has the id of a hold.
func (c *call) names() bool {
	return c.op == opHold || c.op == opHolds || c.op == opSettle || c.op == opRenew
}

// encodeAny returns the keys and arguments of do.lua.
func (c *call) encodeAny(s *Store) (keys, args []string) {
	b := fmt.Appendf(make([]byte, 0, 512), `{"op":%q,"keep":%d,"ttl":%d,"epoch":%d,"most":%d`, c.op, s.keep, c.ttl, s.epoch, maxHolds)
	if s.now != nil {
		b = fmt.Appendf(b, `,"now":%d`, s.nowMicros())
	}
	if c.newer > 1 { // loading the record again did not help: that version was lost
		b = append(b, `,"lost":true`...)
	}
	if c.tries >= maxTries/2 { // as many as its charges need would be too many
		b = append(b, `,"enough":true`...)
	}
	var sets []*compiledLimits
	places := make(map[string]int, len(c.charges)) // of keys
	b = append(b, `,"charges":[`...)
	for i := range c.charges {
		ch := &c.charges[i]
		if places[ch.key] == 0 {
			keys = append(keys, ch.key)
			places[ch.key] = len(keys)
		}
		set := slices.Index(sets, ch.n)
		if set < 0 {
			set = len(sets)
			sets = append(sets, ch.n)
		}
		b = c.appendCharge(b, ch, places[ch.key], set+1)
	}
	b = append(bytes.TrimSuffix(b, comma), ']')
	b = c.appendClasses(b)
	b = append(c.appendUsed(b), `,"sets":[`...)
	for _, n := range sets {
		since, requested := c.since[n]
		if !requested {
			since = n.version
		}
		b = append(b, n.set(c.at, since)...)
		b = append(b, ',')
	}
	b = append(bytes.TrimSuffix(b, comma), ']')
	if c.holds || c.names() {
		b = fmt.Appendf(b, `,"rows":%d`, len(keys))
		for _, row := range keys {
			keys = append(keys, expiriesKey(row), holdsKey(row))
		}
	}
	args = append(args, string(append(b, '}')))
	if c.names() {
		for i := range c.charges {
			args = append(args, string(c.charges[i].id[:]))
		}
	}
	return keys, args
}

var comma = []byte(",")

func (c *call) appendCharge(b []byte, ch *charge, place, set int) []byte {
	b = append(b, '[')
	for _, v := range []int64{int64(place), int64(set), ch.cost} {
		b = strconv.AppendInt(b, v, 10)
		b = append(b, ',')
	}
	if c.op == opRefund {
		b = strconv.AppendInt(b, ch.at, 10)
		b = append(b, ',')
	}
	return append(bytes.TrimSuffix(b, comma), "],"...)
}

// appendUsed appends the units to debit before the decision, if there are any.
func (c *call) appendUsed(b []byte) []byte {
	if !c.debits() {
		return b
	}
	b = append(b, `,"used":[`...)
	for i := range c.charges {
		b = strconv.AppendInt(b, c.charges[i].used, 10)
		b = append(b, ',')
	}
	return append(bytes.TrimSuffix(b, comma), ']')
}

// debits says whether the call debits units before the decision.
func (c *call) debits() bool {
	return slices.ContainsFunc(c.charges, func(ch charge) bool { return ch.used > 0 })
}

// decode reads the script's reply. It returns false if the call must be sent
// again with what the script requested.
func (c *call) decode(reply []int64) (done bool) {
	if c.small {
		return c.decodeSmall(reply)
	}
	if len(reply) < 2 {
		c.err = fmt.Errorf("redisstore: a script answered %v", reply)
		return true
	}
	c.now = reply[1]
	switch reply[0] {
	case statusDone:
		return c.decodeOutcomes(reply[2:])
	case statusNewer:
		c.newer++
		for i := range c.charges {
			c.charges[i].n.history.stale.Store(true)
		}
		return false
	case statusOlder:
		if c.since == nil {
			c.since = map[*compiledLimits]int{}
		}
		c.since[c.charges[reply[2]-1].n] = int(reply[3])
		return false
	case statusCalendar:
		c.at = slices.Concat([]int64{c.now}, reply[2:], c.at[1:])
		return false
	case statusHolds:
		c.holds = true
		return false
	case statusOverfull:
		n := c.charges[reply[2]-1].n
		c.err = fmt.Errorf("redisstore: policy %q: %w: %w", n.policy.Name(), compiled.ErrLimits, errOverfull)
		return true
	}
	c.err = fmt.Errorf("redisstore: a script answered %v", reply)
	return true
}

func (c *call) decodeOutcomes(values []int64) bool {
	if len(values) != len(c.charges)*len(outcome{}) {
		c.err = fmt.Errorf("redisstore: a script answered %d values for %d charges", len(values), len(c.charges))
		return true
	}
	c.outcomes = make([]outcome, len(c.charges))
	for i := range c.outcomes {
		copy(c.outcomes[i][:], values[i*len(outcome{}):])
	}
	return true
}

// spends says whether the call charges units without a hold, which reserve-only policies refuse.
func (c *call) spends() bool { return c.op == opEach || c.op == opAll || c.op == opDebit }

// changed says whether the call, which was executed, has changed something.
func (c *call) changed() bool {
	for i, o := range c.outcomes {
		if c.charges[i].used > 0 {
			return true
		}
		if o[0] == 1 && c.op != opPeek && (c.charges[i].cost > 0 || !c.spends()) {
			return true
		}
	}
	return false
}

// appendClasses appends the class of each charge, if one has a class.
func (c *call) appendClasses(b []byte) []byte {
	if !slices.ContainsFunc(c.charges, func(ch charge) bool { return ch.n.class() != "" }) {
		return b
	}
	b = append(b, `,"classes":[`...)
	for i := range c.charges {
		b = strconv.AppendQuote(b, c.charges[i].n.class()) // names have no characters that JSON writes otherwise
		b = append(b, ',')
	}
	return append(bytes.TrimSuffix(b, comma), ']')
}

// resolveAgain replaces the limits of all charges with those now in force for the callers'
// policies.
func (c *call) resolveAgain(s *Store) error {
	for i := range c.charges {
		ch := &c.charges[i]
		n, err := s.resolve(context.Background(), ch.n.requested)
		if err != nil {
			return err
		}
		if n.policy.ReserveOnly() && (c.spends() || ch.used > 0) {
			return weir.ErrReserveOnly
		}
		ch.n = n
	}
	return nil
}

// decision returns outcome i as a Decision.
func (c *call) decision(i int) weir.Decision {
	o := c.outcomes[i]
	d := weir.Decision{
		Allowed:    o[0] == 1,
		By:         uint8(o[1]),
		Limit:      c.charges[i].n.capacity(int(o[1])),
		Remaining:  o[2],
		RetryAfter: micros(o[3]),
		ResetAfter: micros(o[4]),
	}
	if d.Allowed {
		d.Reason = weir.Admitted
		return d
	}
	d.Reason = [...]weir.Reason{weir.Exhausted, weir.TooCostly, weir.QueueFull}[o[5]&^outcomeHeld]
	d.Held = o[5]&outcomeHeld != 0 && d.Reason != weir.TooCostly // no settling makes that fit
	return d
}
