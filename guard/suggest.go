package guard

import (
	"context"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
)

// Suggestion says which bursts the callers of an endpoint needed, and suggests one. Measure in shadow
// mode: callers who are refused try again or give up, and neither tells what they need.
//
// The burst that a request needed is the least with which the limit, at the same rate, would have
// admitted it and all requests of its subject before. A caller who sends more than the rate for a long
// time needs ever more. No burst is right for that, so the suggestion is what 99 % of the requests
// needed, but at most ten times what the limit allows at once or per period now. If half of the requests
// needed more than that, the suggestion is what they needed, and the rate is what should be raised.
type Suggestion struct {
	Endpoint string        // the name of the endpoint's policy
	Pattern  string        // the endpoint's, "" for Config.Default
	Limit    string        // the limit's name
	Rate     int64         // of the limit, for example 1000
	Per      time.Duration // of the limit, for example 1m
	Burst    int64         // of the limit, now

	// Requests is how many were measured, and Refused how many of those were refused, or would have been in
	// shadow mode.
	Requests, Refused int64

	// Needed50, Needed99 and NeededMax are the bursts with which half, 99 % and all of the requests would
	// have been admitted. The first two are too high by at most 12.5 %, and never too low. None exceeds Most.
	Needed50, Needed99, NeededMax int64

	// Most is the greatest burst that is measured, a thousand periods for most limits, and Beyond the number
	// of requests that needed even more.
	Most, Beyond int64

	// Suggested is the burst to configure, rounded up to two digits that are not zero. It is Burst if
	// nothing was measured.
	Suggested int64
}

const (
	// measuredPeriods is the greatest burst that is measured, in periods of the limit.
	measuredPeriods = 1000

	// maxGrowth bounds Suggested, as a multiple of what the limit allows now.
	maxGrowth = 10
)

// A measurer measures the bursts that subjects need. Its methods may be called by any number of
// goroutines.
type measurer struct {
	table *memstore.Table
}

// newMeasurer returns a measurer that remembers at most maxKeys pairs of an endpoint and a subject. When it is
// full, it forgets those who need least.
func newMeasurer(maxKeys int) (*measurer, error) {
	table, err := memstore.New(memstore.Config{MaxKeys: maxKeys})
	if err != nil {
		return nil, err
	}
	return &measurer{table: table}, nil
}

// observe records a request of a subject to an endpoint. Nothing is recorded if e is nil, if the
// request costs nothing, or if the key cannot be counted.
func (m *measurer) observe(ctx context.Context, e *measured, key string, cost int64, refused bool) {
	if e == nil || cost <= 0 {
		return
	}
	d, err := m.table.Take(ctx, e.policy, key, cost)
	switch {
	case err != nil:
		return
	case d.Allowed:
		e.counts.record(d.Limit - d.Remaining) // both are whole units, so that this is rounded up
	default:
		e.counts.record(e.most)
		e.counts.beyond.Add(1)
	}
	if refused {
		e.counts.refused.Add(1)
	}
}

// measured is an endpoint that is measured. Its fields are set by newMeasured and inherit.
type measured struct {
	name    string
	pattern string // set by the compiler, "" for Config.Default
	limit   ruleset.Limit
	most    int64        // the burst of the policy
	policy  *weir.Policy // one limit like limit, with a burst that is hardly ever exceeded
	counts  *burstCounts
}

// newMeasured returns the endpoint of that name, by its first limit that has a burst: of GCRA or
// TokenBucket, for the subject, in requests, and not off. It returns nil if there is none.
//
// The measurement starts anew if the rate changes, because the policy is then another one.
func newMeasured(name string, limits []ruleset.Limit) *measured {
	for _, l := range limits {
		if !hasBurst(l) {
			continue
		}
		if l.Name == "" {
			l.Name = "main"
		}
		if l.Burst == 0 {
			l.Burst = l.Rate
		}
		e := &measured{name: name, limit: l, most: mostMeasured(l.Limit)}
		unlimited := weir.Limit{Rate: l.Rate, Per: l.Per, Burst: e.most}
		var err error
		if e.policy, err = weir.NewPolicy(fmt.Sprintf("%s:%d/%d", name, l.Rate, l.Per.Duration()), unlimited); err != nil {
			return nil // the limit is no valid one either, and is refused where limits are compiled
		}
		e.counts = newBurstCounts(e.most)
		return e
	}
	return nil
}

func hasBurst(l ruleset.Limit) bool {
	switch l.Algorithm {
	case weir.Auto, weir.GCRA, weir.TokenBucket:
		return l.By == "" && (l.Unit == "" || l.Unit == ruleset.Requests) && l.Mode != ruleset.Off && l.Per.Duration() > 0 && l.Rate > 0
	}
	return false
}

// mostMeasured returns the greatest burst that is measured: that of measuredPeriods, but no more than a limit can
// have, and no less than the limit has. A limit's burst must refill within algo.MaxPer.
func mostMeasured(l weir.Limit) int64 {
	periods := min(measuredPeriods, algo.MaxPer/int64(l.Per.Duration()))
	hi, lo := bits.Mul64(uint64(l.Rate), uint64(periods))
	if hi > 0 || lo > uint64(algo.MaxRate) {
		return algo.MaxRate
	}
	return max(1, int64(lo), l.Burst)
}

// inherit continues the counts of old, the endpoint of the same name in the configuration before, which
// may be nil. It does nothing if the two have different rates.
func (e *measured) inherit(old *measured) {
	if e == nil || old == nil || e.policy.Name() != old.policy.Name() || e.most != old.most {
		return
	}
	e.policy, e.counts = old.policy, old.counts
}

// suggestion returns what was measured. Requests that are recorded meanwhile may be in some numbers and not in
// others.
func (e *measured) suggestion() Suggestion {
	s := Suggestion{
		Endpoint: e.name, Pattern: e.pattern, Limit: e.limit.Name, Rate: e.limit.Rate, Per: e.limit.Per.Duration(), Burst: e.limit.Burst,
		Most: e.most, Suggested: e.limit.Burst,
	}
	s.Refused, s.Beyond = e.counts.refused.Load(), e.counts.beyond.Load()
	s.Requests, s.Needed50, s.Needed99, s.NeededMax = e.counts.needed()
	if s.Requests > 0 {
		s.Suggested = suggestBurst(s)
	}
	return s
}

// suggestBurst returns Suggested for what was measured.
func suggestBurst(s Suggestion) int64 {
	now := max(s.Rate, s.Burst)
	bound := s.Most
	if now < s.Most/maxGrowth {
		bound = now * maxGrowth
	}
	return min(roundUp(max(1, s.Needed50, min(s.Needed99, bound))), s.Most)
}

// roundUp rounds up to two digits that are not zero: 101 to 110.
func roundUp(n int64) int64 {
	unit := int64(1)
	for n/unit >= 100 {
		unit *= 10
	}
	return (n + unit - 1) / unit * unit
}

// burstCounts counts requests by the burst that they needed.
//
// The buckets are log-linear. Bursts up to 15 have a bucket each. From there on each power of two has
// eight buckets of the same width, so that the least and the greatest burst of a bucket differ by less than
// one eighth: 16 to 17, 18 to 19, … 30 to 31, 32 to 35. A burst of up to 100,000 takes 117 buckets, so 1 kB.
//
// Each counter is written by record alone, with atomic additions in no particular order.
type burstCounts struct {
	buckets []atomic.Int64
	max     atomic.Int64 // the greatest burst, exactly
	refused atomic.Int64
	beyond  atomic.Int64
}

func newBurstCounts(most int64) *burstCounts {
	return &burstCounts{buckets: make([]atomic.Int64, bucketOf(most)+1)}
}

// bucketOf returns the bucket of a burst of at least 0.
func bucketOf(burst int64) int {
	shift := max(0, bits.Len64(uint64(burst))-4) // so that burst>>shift is less than 16
	return shift*8 + int(burst>>shift)
}

// greatestIn returns the greatest burst of a bucket.
func greatestIn(bucket int) int64 {
	shift := max(0, bucket/8-1)
	return int64(bucket-shift*8+1)<<shift - 1
}

// record counts a request. Burst must be between 0 and what newBurstCounts was called with.
func (c *burstCounts) record(burst int64) {
	c.buckets[bucketOf(burst)].Add(1)
	for {
		greatest := c.max.Load()
		if burst <= greatest || c.max.CompareAndSwap(greatest, burst) {
			return
		}
	}
}

// needed returns the number of requests, and the bursts that half, 99 % and all of them needed.
func (c *burstCounts) needed() (requests, half, most99, all int64) {
	counts := make([]int64, len(c.buckets))
	for i := range c.buckets {
		counts[i] = c.buckets[i].Load()
		requests += counts[i]
	}
	all = c.max.Load()
	return requests, min(quantile(counts, requests, 50), all), min(quantile(counts, requests, 99), all), all
}

// quantile returns the greatest burst of the bucket in which percent of the requests are reached.
func quantile(counts []int64, requests, percent int64) int64 {
	if requests == 0 {
		return 0
	}
	rank := (requests/100)*percent + (requests%100*percent+99)/100 // rounded up
	for i, n := range counts {
		if rank -= n; rank <= 0 {
			return greatestIn(i)
		}
	}
	return greatestIn(len(counts) - 1)
}
