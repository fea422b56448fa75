package guard

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/ruleset"
)

// penaltyRules are compiled Penalties. All of it is limits of the store, so that the nodes of a fleet
// share scores and penalties:
//
//	interval   1 per Interval: only a violation that it admits counts
//	score      After per Within, burst After: each counted violation takes one unit, and when none
//	           is left, the score is After
//	penalty    1 per window of For that opens with the penalty (AnchoredWindow). While it is open,
//	           the subject is penalized: a second one is refused, which changes nothing, so it is
//	           neither extended nor doubled
//	sustained  Sustained penalties per SustainedWithin
//
// For example, with the defaults a subject that is refused without a break is counted once per second.
// The fifth count finds a score of 4.7, so no whole unit is left: the penalty begins, and ends after
// five minutes.
type penaltyRules struct {
	share     ruleset.Share // of the rates
	lasts     time.Duration
	interval  [2]*weir.Policy // enforced and shadow, like those below
	score     [2]*weir.Policy
	penalty   [2]*weir.Policy
	sustained [2]*weir.Policy
}

// The two scores of a subject.
const (
	enforced = 0
	shadow   = 1
)

func scoreOf(inShadow bool) int {
	if inShadow {
		return shadow
	}
	return enforced
}

// normal returns the penalties with defaults.
func (p Penalties) normal() Penalties {
	if p.After == 0 {
		p.After = 5
	}
	if p.Within == 0 {
		p.Within = time.Minute
	}
	if p.Interval == 0 {
		p.Interval = time.Second
	}
	if p.Multiplier == 0 {
		p.Multiplier = 0.5
	}
	if p.For == 0 {
		p.For = 5 * time.Minute
	}
	if p.Sustained == 0 {
		p.Sustained = 3
	}
	if p.SustainedWithin == 0 {
		p.SustainedWithin = time.Hour
	}
	return p
}

// penalties compiles Penalties and Abuse.
func (c *compiler) penalties() {
	interval := time.Second
	if c.config.Penalties != nil {
		p := c.config.Penalties.normal()
		interval = p.Interval
		c.out.penalties = c.penaltyRules(&p)
	}
	c.events(interval)
	c.abuse()
}

func (c *compiler) penaltyRules(p *Penalties) *penaltyRules {
	share := ruleset.Share(p.Multiplier*float64(ruleset.All) + 0.5)
	if !(p.Multiplier > 0 && p.Multiplier < 1) || share == 0 || share == ruleset.All {
		c.problems = append(c.problems, &fielderr.Error{
			Package: "guard", Path: []any{"Penalties", "Multiplier"}, Value: p.Multiplier,
			Problem: "must be between 0.0001 and 0.9999: a rate is reduced, never to zero",
		})
	}
	return &penaltyRules{
		share: share, lasts: p.For,
		interval:  c.privateLimit("interval", weir.Limit{Rate: 1, Per: weir.Every(p.Interval)}, "Interval"),
		score:     c.privateLimit("score", weir.Limit{Rate: p.After, Per: weir.Every(p.Within)}, "Within"),
		penalty:   c.privateLimit("penalty", weir.Limit{Rate: 1, Per: weir.Every(p.For), Algorithm: weir.AnchoredWindow}, "For"),
		sustained: c.privateLimit("sustained", weir.Limit{Rate: p.Sustained, Per: weir.Every(p.SustainedWithin)}, "SustainedWithin"),
	}
}

// privateLimit compiles a limit of penalties, enforced and in shadow. A problem is reported for the field with its
// period. Nothing is scored while the store is unavailable: the share of one node would be too small to be fair.
func (c *compiler) privateLimit(name string, l weir.Limit, field string) (out [2]*weir.Policy) {
	l.OnError = weir.FailClosed
	for i, suffix := range []string{"", "//shadow"} {
		var err error
		out[i], err = weir.NewPolicy(privatePrefix+"/"+name+suffix, l)
		if err != nil && i == enforced {
			c.complain(fmt.Sprintf("does not make a limit: %v", err), "Penalties", field)
		}
	}
	return out
}

// events compiles how often violations are reported.
func (c *compiler) events(interval time.Duration) {
	for kind := range c.out.events {
		for i, suffix := range []string{"", "//shadow"} {
			name := privatePrefix + "/" + Kind(kind).String() + suffix
			policy, err := weir.NewPolicy(name, weir.Limit{Rate: 1, Per: weir.Every(interval)})
			if err != nil { // the interval, which has been reported
				policy = weir.Must(weir.NewPolicy(name, weir.PerSecond(1)))
			}
			c.out.events[kind][i] = policy
		}
	}
}

func (c *compiler) abuse() {
	if a := c.config.Abuse; a != nil {
		limit := weir.Limit{Rate: a.Requests, Per: weir.Every(a.Per), Algorithm: weir.SlidingWindow}
		if a.Requests == 0 {
			limit.Rate = 60
		}
		if a.Per == 0 {
			limit.Per = weir.Every(2 * time.Second)
		}
		var err error
		if c.out.abuse, err = weir.NewPolicy(privatePrefix+"/abuse", limit); err != nil {
			c.note(err, "Abuse")
		}
	}
}

// policies returns the limits of penalties.
func (r *penaltyRules) policies() (list []*weir.Policy) {
	if r == nil {
		return nil
	}
	for i := range 2 {
		list = append(list, r.interval[i], r.score[i], r.penalty[i], r.sustained[i])
	}
	return list
}

// penalized is when the penalties of a subject end: the enforced one and the one in shadow. 0 is none.
type penalized [2]weir.Instant

// share returns the share of its rates that a subject has at now.
func (p penalized) share(r *penaltyRules, score int, now weir.Instant) ruleset.Share {
	if p[score] > now {
		return r.share
	}
	return 0
}

// penaltyCache remembers who is penalized and who is not, so that the store need not be asked at each
// request. The store has the truth: what is dropped here is looked up there. Subjects are identified
// by a seeded hash of 64 bits.
type penaltyCache struct {
	seed   maphash.Seed
	shards [16]penaltyShard
}

type penaltyShard struct {
	mu   sync.Mutex // guards rows
	rows map[uint64]penaltyRow
}

type penaltyRow struct {
	penalized
	seen weir.Instant // when the store was asked
}

func newPenaltyCache() *penaltyCache {
	c := &penaltyCache{seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].rows = map[uint64]penaltyRow{}
	}
	return c
}

func (c *penaltyCache) shard(subject string) (*penaltyShard, uint64) {
	h := maphash.String(c.seed, subject)
	return &c.shards[h%uint64(len(c.shards))], h
}

// get returns what is known of a subject since an instant.
func (c *penaltyCache) get(subject string, since weir.Instant) (penalized, bool) {
	s, h := c.shard(subject)
	s.mu.Lock()
	defer s.mu.Unlock()
	row, ok := s.rows[h]
	return row.penalized, ok && row.seen >= since
}

// learn remembers what the store said when it was asked at an instant, unless something has changed on
// this node since then. Most is the number of rows that fit.
func (c *penaltyCache) learn(subject string, p penalized, asked weir.Instant, most int) {
	c.update(subject, most, func(row *penaltyRow) {
		if row.seen < asked {
			*row = penaltyRow{p, asked}
		}
	})
}

// begin notes that a penalty began on this node.
func (c *penaltyCache) begin(subject string, score int, until, now weir.Instant, most int) {
	c.update(subject, most, func(row *penaltyRow) { row.penalized[score], row.seen = until, now })
}

// end notes that the penalties of a subject ended on this node.
func (c *penaltyCache) end(subject string, now weir.Instant, most int) {
	c.update(subject, most, func(row *penaltyRow) { *row = penaltyRow{seen: now} })
}

// update changes the row of a subject, which is zero if it is not known.
func (c *penaltyCache) update(subject string, most int, change func(*penaltyRow)) {
	s, h := c.shard(subject)
	s.mu.Lock()
	defer s.mu.Unlock()
	row, known := s.rows[h]
	if !known && len(s.rows) >= max(1, most/len(c.shards)) {
		clear(s.rows) // they are looked up again
	}
	change(&row)
	s.rows[h] = row
}

// refresh is how long what is known of a subject counts if other nodes may penalize it.
const refresh = weir.Instant(time.Second)

// penaltyOf returns the penalties of a subject. If the store cannot be asked, there are none.
func (g *Guard) penaltyOf(ctx context.Context, r *Rules, subject string, now weir.Instant) penalized {
	since := weir.Instant(0)
	if r.shared {
		since = now - refresh
	}
	if p, ok := g.penalties.get(subject, since); ok {
		return p
	}
	p, err := g.peekPenalty(ctx, r, subject)
	if err == nil {
		g.penalties.learn(subject, p, now, r.maxRows)
	}
	return p
}

// peekPenalty asks the store for the penalties of a subject.
func (g *Guard) peekPenalty(ctx context.Context, r *Rules, subject string) (p penalized, err error) {
	b := batches.Get().(*weir.Batch)
	defer freeBatch(b)
	b.Op = weir.PeekEach
	for score := range p {
		b.Charges = append(b.Charges, weir.Charge{Policy: r.penalties.penalty[score], Key: subject, Cost: 1})
	}
	if err := g.engine.Limiter().Do(ctx, b); err != nil {
		return p, err
	}
	now := weir.Now()
	for score, d := range b.Decisions {
		if !d.Allowed && d.Reason == weir.Exhausted {
			p[score] = now.Add(d.RetryAfter)
		}
	}
	return p, nil
}

var batches = sync.Pool{New: func() any { return new(weir.Batch) }}

func freeBatch(b *weir.Batch) {
	clear(b.Charges) // keys are not kept
	b.Charges = b.Charges[:0]
	batches.Put(b)
}

// Penalty returns when the subject's penalty ends. It is the zero time if there is none.
func (g *Guard) Penalty(ctx context.Context, subject string) (until time.Time, err error) {
	r := g.rules.Load()
	if r.penalties == nil {
		return time.Time{}, nil
	}
	p, err := g.peekPenalty(ctx, r, subject)
	if err != nil || p[enforced] == 0 {
		return time.Time{}, err
	}
	return g.hooks.Now().Add(p[enforced].Sub(weir.Now())), nil
}

// Pardon ends the subject's penalties and sets its scores to zero. Other nodes follow within a second.
func (g *Guard) Pardon(ctx context.Context, subject string) error {
	r := g.rules.Load()
	if r.penalties == nil {
		return nil
	}
	b := weir.Batch{Op: weir.ResetEach}
	for _, p := range r.penalties.policies() {
		b.Charges = append(b.Charges, weir.Charge{Policy: p, Key: subject})
	}
	if err := g.engine.Limiter().Do(ctx, &b); err != nil {
		return err
	}
	g.penalties.end(subject, weir.Now(), r.maxRows)
	return nil
}
