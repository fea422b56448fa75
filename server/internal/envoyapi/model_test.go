package envoyapi

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// model is the service written in the most obvious way: it scans rules, and has a number
// for each counter and window.
type model struct {
	domain Domain
	used   map[string]int64
	now    time.Time
}

// found is what the model knows of a descriptor.
type found struct {
	*Descriptor        // nil if none fits
	limit       *Limit // nil if none is for it
	counter     string
	hits        int64
	over        bool
	remaining   int64
}

// find walks the tree. Among equals the exact value wins, then the pattern with the most
// characters or, with compat, the first, then any. The texts are what tells counters apart: with
// share_threshold the pattern, not the value.
func find(list []Descriptor, entries []*rlcommon.RateLimitDescriptor_Entry, compat bool, path, text string) (*Descriptor, string, string) {
	if len(entries) == 0 {
		return nil, "", text
	}
	var best *Descriptor
	rank := -1
	for i := range list {
		d := &list[i]
		r := -1
		switch value := entries[0].Value; {
		case d.Key != entries[0].Key:
		case d.Value == "":
			r = 0
		case !strings.Contains(d.Value, "*"):
			if d.Value == value {
				r = 1 << 20
			}
		case fits(d.Value, value) && compat:
			r = 1 + len(list) - i
		case fits(d.Value, value):
			r = 1 + len(d.Value) - strings.Count(d.Value, "*")
		}
		if r > rank {
			best, rank = d, r
		}
	}
	if best == nil {
		return nil, "", text
	}
	path += "/" + best.Key + "=" + best.Value
	value := entries[0].Value
	if best.ShareThreshold {
		value = best.Value
	}
	text += best.Key + "=" + value + " "
	if len(entries) == 1 {
		return best, path, text
	}
	return find(best.Descriptors, entries[1:], compat, path, text)
}

// fits tries all texts for each *.
func fits(pattern, value string) bool {
	before, after, ok := strings.Cut(pattern, "*")
	rest, has := strings.CutPrefix(value, before)
	if !ok || !has {
		return has && rest == ""
	}
	for i := range len(rest) + 1 {
		if fits(after, rest[i:]) {
			return true
		}
	}
	return false
}

// text is a descriptor's entries: what tells counters apart. Protobuf's own text takes most of
// the test's time.
func text(d *rlcommon.RateLimitDescriptor) (out string) {
	for _, e := range d.Entries {
		out += e.Key + "=" + e.Value + " "
	}
	return out
}

var lengths = map[Unit]int64{Second: 1, Minute: 60, Hour: 3600, Day: 86400}

func (m *model) look(r *rlsv3.RateLimitRequest, d *rlcommon.RateLimitDescriptor) *found {
	f := &found{hits: max(1, int64(r.HitsAddend))}
	if d.HitsAddend != nil {
		f.hits = int64(d.HitsAddend.Value)
	}
	var path, counted string
	f.Descriptor, path, counted = find(m.domain.Descriptors, d.Entries, m.domain.Compat, "", "")
	if f.Descriptor != nil {
		f.limit = f.Limit
	}
	if o := d.Limit; o != nil {
		times := uint32(1)
		if o.UnitMultiplier != nil {
			times = o.UnitMultiplier.Value
		}
		own := &Limit{Unit: Unit(o.Unit), UnitMultiplier: times, RequestsPerUnit: o.RequestsPerUnit}
		counts := f.limit != nil && !f.limit.Unlimited && (f.limit.RequestsPerUnit > 0 || m.domain.Compat)
		if !counts || f.limit.Unit != own.Unit || max(1, f.limit.UnitMultiplier) != times {
			path = fmt.Sprint("brought ", own.Unit, times)
		}
		f.limit, f.Descriptor, counted = own, &Descriptor{}, text(d) // which is not shared
	}
	if f.limit != nil && !f.limit.Unlimited {
		length := lengths[f.limit.Unit] * int64(max(1, f.limit.UnitMultiplier))
		f.counter = fmt.Sprint(path, counted, length, m.now.Unix()/length)
	}
	return f
}

// answer decides a request and returns what is to be seen of it.
func (m *model) response(r *rlsv3.RateLimitRequest) string {
	var list []*found
	replaced := map[string]bool{}
	for _, d := range r.Descriptors {
		f := m.look(r, d)
		list = append(list, f)
		if f.limit != nil {
			for _, name := range f.limit.Replaces {
				replaced[name] = true
			}
		}
	}
	for _, f := range list {
		if f.limit != nil && f.limit.Name != "" && replaced[f.limit.Name] && !f.limit.Unlimited {
			f.limit = nil
		}
	}
	if m.domain.Compat {
		m.each(list)
	} else {
		m.allOrNothing(list)
	}
	return m.describe(list)
}

// each is how the reference counts.
func (m *model) each(list []*found) {
	for _, f := range list {
		if f.limit != nil && !f.limit.Unlimited {
			m.used[f.counter] += f.hits
			f.over = m.used[f.counter] > int64(f.limit.RequestsPerUnit)
			f.remaining = max(0, int64(f.limit.RequestsPerUnit)-m.used[f.counter])
		}
	}
}

// allOrNothing is how weir counts. Those in shadow follow, each by itself.
func (m *model) allOrNothing(list []*found) {
	for _, f := range list {
		if f.limit != nil && !f.limit.Unlimited {
			f.remaining = max(0, int64(f.limit.RequestsPerUnit)-m.used[f.counter])
			f.over = f.hits > f.remaining
		}
	}
	if !passes(list) {
		return
	}
	for _, f := range list {
		if f.limit != nil && !f.limit.Unlimited && !f.over {
			m.used[f.counter] += f.hits
			f.remaining -= f.hits
		}
	}
}

func passes(list []*found) bool {
	quotas, full := 0, 0
	for _, f := range list {
		switch {
		case f.limit == nil || f.ShadowMode:
		case f.QuotaMode:
			quotas++
			if f.over {
				full++
			}
		case f.over:
			return false
		}
	}
	return quotas == 0 || full < quotas
}

func (m *model) describe(list []*found) string {
	out := "OVER_LIMIT:"
	if passes(list) {
		out = "OK:"
	}
	for _, f := range list {
		switch {
		case f.limit == nil:
			out += " none"
		case f.limit.Unlimited:
			out += " unlimited"
		case f.over && !f.ShadowMode:
			out += fmt.Sprint(" over ", f.remaining)
		default:
			out += fmt.Sprint(" ok ", f.remaining)
		}
	}
	return out
}

// seen is the same of an answer.
func seen(r *rlsv3.RateLimitResponse) string {
	out := r.OverallCode.String() + ":"
	for _, s := range r.Statuses {
		switch {
		case s.CurrentLimit == nil && s.LimitRemaining == 0:
			out += " none"
		case s.CurrentLimit == nil:
			out += " unlimited"
		case s.Code == rlsv3.RateLimitResponse_OVER_LIMIT:
			out += fmt.Sprint(" over ", s.LimitRemaining)
		default:
			out += fmt.Sprint(" ok ", s.LimitRemaining)
		}
	}
	return out
}

// TestModel asks service and model the same, for random rules and requests.
func TestModel(t *testing.T) {
	for seed := range uint64(200) {
		g := &generator{rand.New(rand.NewPCG(seed, 7))}
		domain := Domain{Name: "d", Descriptors: g.tree(3), Compat: seed%2 == 0}
		w := newWorld(t, domain)
		m := &model{domain: domain, used: map[string]int64{}, now: w.now}
		for step := range 100 {
			if g.IntN(10) == 0 {
				w.now = w.now.Add(time.Duration(g.IntN(90)) * time.Second)
				m.now = w.now
			}
			r := g.request()
			taken := map[string]bool{"": true}
			r.Descriptors = slices.DeleteFunc(r.Descriptors, func(d *rlcommon.RateLimitDescriptor) bool {
				counter := m.look(r, d).counter
				defer func() { taken[counter] = true }()
				return counter != "" && taken[counter] // how those add up is the limiter's to say
			})
			got, err := w.ask(r)
			must(t, err)
			if want := m.response(r); seen(got) != want {
				t.Fatalf("seed %d, step %d, compat %v: %v\ngot  %s\nwant %s\nrules %+v", seed, step, domain.Compat, r, seen(got), want, domain)
			}
		}
	}
}

// generator invents rules and requests of few words, so that they meet.
type generator struct{ *rand.Rand }

func pick[T any](g *generator, list ...T) T { return list[g.IntN(len(list))] }

func (g *generator) tree(depth int) (list []Descriptor) {
	taken := map[entry]bool{}
	for range g.IntN(6) {
		d := Descriptor{Key: pick(g, "a", "b", "c"), Value: pick(g, "", "", "x", "xy", "x*", "xy*", "*", "*z", "x*z", "*y*")}
		if taken[entry{d.Key, d.Value}] {
			continue
		}
		taken[entry{d.Key, d.Value}] = true
		d.ShareThreshold = strings.Contains(d.Value, "*") && g.IntN(3) == 0
		d.ShadowMode, d.QuotaMode = g.IntN(6) == 0, g.IntN(6) == 0
		d.QuotaMode = d.QuotaMode && !d.ShadowMode
		if g.IntN(5) > 0 {
			d.Limit = g.limit()
		}
		if depth > 0 {
			d.Descriptors = g.tree(depth - 1)
		}
		list = append(list, d)
	}
	return list
}

func (g *generator) limit() *Limit {
	if g.IntN(8) == 0 {
		return &Limit{Unlimited: true}
	}
	l := &Limit{Unit: pick(g, Second, Minute, Hour), RequestsPerUnit: uint32(g.IntN(12)), UnitMultiplier: uint32(g.IntN(3))}
	l.Name = pick(g, "", "p", "q")
	if name := pick(g, "p", "q"); g.IntN(4) == 0 && name != l.Name {
		l.Replaces = []string{name}
	}
	return l
}

// request has no descriptor twice.
func (g *generator) request() *rlsv3.RateLimitRequest {
	r := &rlsv3.RateLimitRequest{Domain: "d", HitsAddend: uint32(g.IntN(3))}
	taken := map[string]bool{}
	for range 1 + g.IntN(4) {
		d := &rlcommon.RateLimitDescriptor{}
		for range 1 + g.IntN(3) {
			d.Entries = append(d.Entries, &rlcommon.RateLimitDescriptor_Entry{Key: pick(g, "a", "b", "c"), Value: pick(g, "", "x", "xy", "xyz", "z", "yz")})
		}
		if taken[text(d)] {
			continue
		}
		taken[text(d)] = true
		if g.IntN(3) == 0 {
			d.HitsAddend = wrapperspb.UInt64(uint64(g.IntN(4)))
		}
		if g.IntN(6) == 0 {
			d.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(g.IntN(12)), Unit: pick(g, typev3.RateLimitUnit_SECOND, typev3.RateLimitUnit_MINUTE)}
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}
