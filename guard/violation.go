package guard

import (
	"context"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// Violation is something that a subject did wrong.
type Violation struct {
	Kind     Kind
	Subject  string // the subject's key
	Endpoint string // the name of the endpoint's policy, "" if the kind is not about one
	Limit    string // the name of the limit that refused, or ""
	At       time.Time

	// Shadow says that nothing was refused, because the limit is in shadow.
	Shadow bool

	// Until is when the penalty ends, if Kind is Penalized.
	Until time.Time
}

// Kind is a kind of violation.
type Kind uint8

// The kinds of violations.
const (
	Exceeded  Kind = iota // a limit refused requests
	RapidFire             // the subject sent many requests in a short time: Abuse
	Penalized             // a penalty began
	Sustained             // several penalties began: Penalties.Sustained
	kinds
)

var kindNames = [kinds]string{"exceeded", "rapid_fire", "penalized", "sustained"}

// String returns the name of the kind, such as "rapid_fire".
func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return "unknown"
}

// violate reports a violation and, if it counts, adds it to the subject's score. It does not count if
// the subject has a penalty already. The store is asked at most once per interval and subject.
func (g *Guard) violate(ctx context.Context, r *Rules, v Violation, counts bool) {
	g.stats.violated(v)
	if !g.isReported(ctx, r, &v) {
		return
	}
	v.Subject = strings.Clone(v.Subject) // the caller may reuse its memory
	v.At = g.hooks.Now()
	g.report(v)
	if r.penalties != nil && counts {
		g.score(ctx, r, v)
	}
}

// isReported says whether a subject had no violation of the kind for an interval.
func (g *Guard) isReported(ctx context.Context, r *Rules, v *Violation) bool {
	d, err := g.local.Take(ctx, r.events[v.Kind][scoreOf(v.Shadow)], v.Subject, 1)
	return err == nil && d.Allowed
}

func (g *Guard) report(v Violation) {
	if g.hooks.OnViolation != nil {
		g.hooks.OnViolation(v)
	}
}

// score adds to the score of a subject, and begins a penalty if that is due. Errors, and refusals for
// another reason than the limit, mean that the store cannot be asked: then nothing is added.
func (g *Guard) score(ctx context.Context, r *Rules, v Violation) {
	l, p, at := g.engine.Limiter(), r.penalties, scoreOf(v.Shadow)
	if d, err := l.Take(ctx, p.interval[at], v.Subject, 1); err != nil || !d.Allowed {
		return
	}
	if d, err := l.Take(ctx, p.score[at], v.Subject, 1); err != nil || !isDecided(d) || d.Allowed && d.Remaining > 0 {
		return
	}
	d, err := l.Take(ctx, p.penalty[at], v.Subject, 1)
	if err != nil || !isDecided(d) {
		return
	}
	now, lasts := weir.Now(), p.lasts
	if !d.Allowed { // it began on another node
		g.penalties.begin(v.Subject, at, now.Add(d.RetryAfter), now, r.maxRows)
		return
	}
	g.penalties.begin(v.Subject, at, now.Add(lasts), now, r.maxRows)
	_ = weir.Reset(ctx, l, p.score[at], v.Subject) // so that it begins at zero after the penalty
	v.Kind, v.Until = Penalized, v.At.Add(lasts)
	g.stats.violated(v)
	g.report(v)
	if d, err := l.Take(ctx, p.sustained[at], v.Subject, 1); err == nil && isDecided(d) && d.Remaining == 0 {
		v.Kind = Sustained
		g.stats.violated(v)
		g.report(v)
	}
}

// isDecided says whether a decision is that of the limit.
func isDecided(d weir.Decision) bool { return d.Allowed || d.Reason == weir.Exhausted }

// Offender is a subject that was refused often.
type Offender struct {
	Subject  string
	Refusals int64 // an upper bound; recent ones count more
}

// Offenders returns the n subjects that were refused most in the last minutes, of those in this process.
func (g *Guard) Offenders(n int) []Offender {
	g.offenders.Decay(int64(weir.Now()))
	list := []Offender{}
	for _, e := range g.offenders.Top(n) {
		list = append(list, Offender{Subject: e.Label, Refusals: e.Count})
	}
	return list
}
