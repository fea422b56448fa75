package redisstore

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/compiled"
)

// compiledLimits is one set of limits of a policy, in the form that the scripts take.
//
// The scripts count time in whole microseconds. A rate is a units per b µs in lowest
// terms, so a unit is replenished in b/a µs, and an instant of GCRA is a
// pair w + f/a µs: exact for every rate, without a number above 2^53.
type compiledLimits struct {
	policy    *weir.Policy // in force
	requested *weir.Policy // the policy of the call; set by resolve
	history   *history
	version   int    // of the history
	fp        uint64 // fingerprint of the limits; 48 bits
	rows      string // prefix of the rows' keys

	rules []string   // in JSON; a calendar's has a %s for its boundaries
	cals  []calendar // of those rules that have one
	fixed string     // the set in JSON, if none has
	small *small     // if take.lua can serve it
}

// A calendar is that of one rule.
type calendar struct {
	rule int
	algo *algo.Calendar
}

// maxRateTerm bounds the terms a and b of a rate: the scripts' arithmetic is exact below it.
const maxRateTerm = 1 << 51

// compileLimits compiles a policy, or returns why its limits are not supported in Redis.
func (s *Store) compileLimits(p *weir.Policy, h *history, version int) (*compiledLimits, error) {
	n := &compiledLimits{policy: p, history: h, version: version, fp: fingerprint(p), rows: s.rowPrefix(p.Name())}
	for i, l := range p.Limits() {
		text, err := n.rule(i, l)
		if err != nil {
			return nil, fmt.Errorf("redisstore: policy %q, limit %q: %w: %w", p.Name(), l.Name, compiled.ErrLimits, err)
		}
		n.rules = append(n.rules, text)
	}
	if len(n.cals) == 0 {
		n.fixed = n.setText(nil, nil)
	}
	if l := p.Limits()[0]; len(p.Limits()) == 1 && l.Name == "main" && isGCRA(l) && l.Initial == (weir.Fill{}) && !s.general {
		n.small = newSmall(n, l)
	}
	return n, nil
}

// class returns the class of the call's charges, "" if it has none.
func (n *compiledLimits) class() string { return n.requested.Compiled().Class }

// capacity returns the most units that limit i ever admits at once for the call's class.
func (n *compiledLimits) capacity(i int) int64 {
	if l, ok := n.policy.Compiled().Rules[i].(*algo.Lending); ok {
		return l.CapacityOf(n.class())
	}
	return n.policy.Compiled().Capacity(i)
}

func isGCRA(l weir.Limit) bool { return l.Algorithm == weir.GCRA || l.Algorithm == weir.TokenBucket }

var kinds = map[weir.Algorithm]string{
	weir.FixedWindow: "f", weir.DualWindow: "f", weir.AnchoredWindow: "a",
	weir.SlidingWindow: "s", weir.SlidingLog: "l", weir.Concurrency: "c",
}

// rule returns limit i in JSON.
func (n *compiledLimits) rule(i int, l weir.Limit) (string, error) {
	name, _ := json.Marshal(l.Name)
	if isGCRA(l) {
		return gcraText(string(name), l, n.policy.Compiled().Fills[i])
	}
	if lending, ok := n.policy.Compiled().Rules[i].(*algo.Lending); ok {
		return lendingText(string(name), l, lending), nil
	}
	head := fmt.Sprintf(`{"name":%s,"kind":%q,"cap":%d`, name, kinds[l.Algorithm], l.Rate)
	if missing := missingUnits(l, n.policy.Compiled().Fills[i]); missing > 0 {
		head += fmt.Sprintf(`,"miss":%d`, missing)
	}
	unit, zone := l.Per.Calendar()
	switch per := l.Per.Duration(); {
	case l.Algorithm == weir.Concurrency:
		return head + "}", nil
	case zone != nil:
		n.cals = append(n.cals, calendar{i, algo.NewCalendar(unit, zone)})
		if paced, ok := n.policy.Compiled().Rules[i].(*algo.Paced); ok {
			names, _ := json.Marshal(paced.Classes())
			head += fmt.Sprintf(`,"paced":%s`, names)
		}
		return head + `,"per":0,"cal":%s}`, nil
	case per%time.Microsecond != 0:
		return "", fmt.Errorf("per %v: Redis counts time in microseconds; a window must be a whole number of them", per)
	default:
		return fmt.Sprintf(`%s,"per":%d}`, head, per.Microseconds()), nil
	}
}

// lendingText returns a limit with classes in JSON: rates in parts of a unit per µs, bursts in units,
// and a class as its name, rate, burst, and 1 if it does not borrow.
func lendingText(name string, l weir.Limit, r *algo.Lending) string {
	m := r.Micros()
	b := fmt.Appendf(nil, `{"name":%s,"kind":"p","cap":%d,"parts":%d,"rate":%d,"debt":%d,"first":%d,"classes":[`,
		name, l.Burst, m.Parts, m.Rate, r.Debt(), 1+slices.Index(m.Classes, m.First))
	for i, s := range r.Shares() {
		class, _ := json.Marshal(s.Class)
		noBorrow := 0
		if s.NoBorrow {
			noBorrow = 1
		}
		b = fmt.Appendf(b, `[%s,%d,%d,%d],`, class, m.Rates[i], s.Burst, noBorrow)
	}
	b = append(b[:len(b)-1], ']')
	if m.Initial != nil {
		initial, _ := json.Marshal(m.Initial)
		b = fmt.Appendf(b, `,"init":%s`, initial)
	}
	return string(append(b, '}'))
}

// missingUnits returns how many units a window starts short of full, rounded up.
func missingUnits(l weir.Limit, fill algo.Fill) int64 {
	up := new(big.Int).Mul(big.NewInt(l.Rate), big.NewInt(int64(fill)))
	up.Add(up, big.NewInt(algo.FillSteps-1))
	return up.Div(up, big.NewInt(algo.FillSteps)).Int64()
}

// gcraText returns a GCRA limit in JSON.
func gcraText(name string, l weir.Limit, missing algo.Fill) (string, error) {
	a, b, err := rateTerms(l)
	if err != nil {
		return "", err
	}
	burst, most := units(l.Burst).span(a, b), mostUnits(l).span(a, b)
	text := fmt.Sprintf(`{"name":%s,"kind":"g","cap":%d,"a":%d,"b":%d,"Bw":%d,"Bf":%d,"Mw":%d,"Mf":%d`,
		name, l.Burst, a, b, burst.w, burst.f, most.w, most.f)
	if missing > 0 {
		m := amount{num: new(big.Int).Mul(big.NewInt(l.Burst), big.NewInt(int64(missing))), den: algo.FillSteps}.span(a, b)
		text += fmt.Sprintf(`,"mw":%d,"mf":%d`, m.w, m.f)
	}
	return text + "}", nil
}

// rateTerms returns a rate as a units per b µs, in lowest terms.
func rateTerms(l weir.Limit) (a, b int64, err error) {
	num := new(big.Int).Mul(big.NewInt(l.Rate), big.NewInt(1000))
	den := big.NewInt(int64(l.Per.Duration()))
	g := new(big.Int).GCD(nil, nil, num, den)
	num.Div(num, g)
	den.Div(den, g)
	if num.Cmp(big.NewInt(maxRateTerm)) >= 0 || den.Cmp(big.NewInt(maxRateTerm)) >= 0 {
		return 0, 0, fmt.Errorf("rate %d per %v: has too many digits for Redis; use a rounder rate or period", l.Rate, l.Per)
	}
	return num.Int64(), den.Int64(), nil
}

// mostUnits returns burst and debt together, as algo.NewGCRA limits them.
func mostUnits(l weir.Limit) amount {
	if l.MaxDebt != 0 {
		return units(l.Burst + l.MaxDebt)
	}
	fillable := new(big.Int).Mul(big.NewInt(l.Rate), big.NewInt(int64(algo.MaxPer)))
	fillable.Div(fillable, big.NewInt(int64(l.Per.Duration())))
	most := new(big.Int).Add(big.NewInt(l.Burst), big.NewInt(algo.MaxCost))
	if fillable.Cmp(most) < 0 {
		most = fillable
	}
	return amount{num: most, den: 1}
}

// An amount is num/den units.
type amount struct {
	num *big.Int
	den int64
}

func units(n int64) amount { return amount{big.NewInt(n), 1} }

// A pair is w + f/a µs, where a is that of the rate.
type pair struct{ w, f int64 }

// span returns how long an amount takes to be replenished, rounded up.
func (m amount) span(a, b int64) pair {
	parts := new(big.Int).Mul(m.num, big.NewInt(b)) // in parts of 1/a µs
	parts.Add(parts, big.NewInt(m.den-1))
	parts.Div(parts, big.NewInt(m.den))
	w, f := new(big.Int).DivMod(parts, big.NewInt(a), new(big.Int))
	return pair{w.Int64(), f.Int64()}
}

// set returns the limits in JSON, with the calendar boundaries of some instants and the changes since a version.
func (n *compiledLimits) set(at []int64, since int) string {
	if n.fixed != "" && since >= n.version {
		return n.fixed
	}
	return n.setText(at, n.history.past(since, n.version))
}

func (n *compiledLimits) setText(at []int64, past []byte) string {
	b := fmt.Appendf(nil, `{"version":%d,"fp":%d,"longest":%d`, n.version, n.fp, compiled.MaxTTL.Microseconds())
	if _, err := n.policy.Compiled().Expiry(int64(0), weir.NoExpiry); err == nil {
		b = append(b, `,"endless":true`...)
	}
	if past == nil {
		b = fmt.Appendf(b, `,"since":%d`, n.version)
	} else {
		b = append(b, past...)
	}
	b = append(b, `,"rules":[`...)
	for i, text := range n.rules {
		if i > 0 {
			b = append(b, ',')
		}
		if k := slices.IndexFunc(n.cals, func(c calendar) bool { return c.rule == i }); k >= 0 {
			b = fmt.Appendf(b, text, n.cals[k].boundaries(at))
			continue
		}
		b = append(b, text...)
	}
	return string(append(b, "]}"...))
}

// boundaries returns, in JSON and for each instant, the begin and end of its window and
// the end of the next window, so that a script that runs a little later
// need not request them again.
func (c calendar) boundaries(at []int64) string {
	var list []int64
	for _, micros := range at {
		begin, end := c.algo.Bounds(c.algo.Number(micros * 1000))
		_, next := c.algo.Bounds(c.algo.Number(end))
		list = append(list, begin/1000, end/1000, next/1000)
	}
	text, _ := json.Marshal(list) // numbers only
	return string(text)
}

// fingerprint returns 48 bits of a hash of a policy's name and limits, the same in
// every process.
func fingerprint(p *weir.Policy) uint64 {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%q", p.Name())
	if p.Compiled().Override {
		_, _ = fmt.Fprint(h, " override ")
	}
	for i, l := range p.Limits() {
		_, _ = fmt.Fprintf(h, "%q %d %d %s %d %d %d ", l.Name, l.Algorithm, l.Rate, periodText(l.Per), l.Burst, p.Compiled().Fills[i], l.MaxDebt)
		if classes := l.Classes.List(); len(classes) > 0 || l.Pace != "" {
			_, _ = fmt.Fprintf(h, "%v %q ", classes, l.Pace)
		}
	}
	return binary.BigEndian.Uint64(h.Sum(nil)) >> 16
}

// periodText returns a period as text that is unique also if two zones have the same name.
func periodText(p weir.Period) string {
	text := p.String()
	if _, zone := p.Calendar(); zone != nil {
		_, offset := time.Unix(0, int64(algo.Epoch)).In(zone).Zone()
		text += " " + strconv.Itoa(offset)
	}
	return text
}
