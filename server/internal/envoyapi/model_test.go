package envoyapi

import (
	"fmt"
	"math/rand/v2"
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

// find walks the tree. Among equals the exact value wins, then the longest prefix, then any.
func find(list []Descriptor, entries []*rlcommon.RateLimitDescriptor_Entry, path string) (*Descriptor, string) {
	if len(entries) == 0 {
		return nil, ""
	}
	var best *Descriptor
	rank := -1
	for i := range list {
		d := &list[i]
		prefix, open := strings.CutSuffix(d.Value, "*")
		r := -1
		switch value := entries[0].Value; {
		case d.Key != entries[0].Key:
		case d.Value == "":
			r = 0
		case open && strings.HasPrefix(value, prefix):
			r = 1 + len(prefix)
		case !open && d.Value == value:
			r = 1 << 20
		}
		if r > rank {
			best, rank = d, r
		}
	}
	if best == nil {
		return nil, ""
	}
	path += "/" + best.Key + "=" + best.Value
	if len(entries) == 1 {
		return best, path
	}
	return find(best.Descriptors, entries[1:], path)
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
	var path string
	f.Descriptor, path = find(m.domain.Descriptors, d.Entries, "")
	if f.Descriptor != nil {
		f.limit = f.Limit
	}
	if o := d.Limit; o != nil {
		times := uint32(1)
		if o.UnitMultiplier != nil {
			times = o.UnitMultiplier.Value
		}
		own := &Limit{Unit: Unit(o.Unit), UnitMultiplier: times, RequestsPerUnit: o.RequestsPerUnit}
		counted := f.limit != nil && !f.limit.Unlimited && (f.limit.RequestsPerUnit > 0 || m.domain.Compat)
		if !counted || f.limit.Unit != own.Unit || max(1, f.limit.UnitMultiplier) != times {
			path = fmt.Sprint("brought ", own.Unit, times)
		}
		f.limit, f.Descriptor = own, &Descriptor{}
	}
	if f.limit != nil && !f.limit.Unlimited {
		length := lengths[f.limit.Unit] * int64(max(1, f.limit.UnitMultiplier))
		f.counter = fmt.Sprint(path, text(d), length, m.now.Unix()/length)
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
		d := Descriptor{Key: pick(g, "a", "b", "c"), Value: pick(g, "", "", "x", "xy", "x*", "xy*", "*")}
		if taken[entry{d.Key, d.Value}] {
			continue
		}
		taken[entry{d.Key, d.Value}] = true
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
	if g.IntN(4) == 0 {
		l.Replaces = []string{pick(g, "p", "q")}
	}
	return l
}

// request has no descriptor twice: how those add up is the limiter's to say.
func (g *generator) request() *rlsv3.RateLimitRequest {
	r := &rlsv3.RateLimitRequest{Domain: "d", HitsAddend: uint32(g.IntN(3))}
	taken := map[string]bool{}
	for range 1 + g.IntN(4) {
		d := &rlcommon.RateLimitDescriptor{}
		for range 1 + g.IntN(3) {
			d.Entries = append(d.Entries, &rlcommon.RateLimitDescriptor_Entry{Key: pick(g, "a", "b", "c"), Value: pick(g, "", "x", "xy", "xyz", "z")})
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
