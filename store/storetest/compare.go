package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// asReported returns an exact decision as the store tells it: durations are rounded up
// to its resolution. Every comparison of the suite goes through here, so that a
// store with coarser time needs no exceptions elsewhere.
func (s *Store) asReported(d weir.Decision) weir.Decision {
	d.RetryAfter = roundUp(d.RetryAfter, s.Resolution)
	d.ResetAfter = roundUp(d.ResetAfter, s.Resolution)
	return d
}

// isTie says whether two refusals differ only in which of two limits they are of, whose times to retry the store
// cannot tell apart: two units of 11 per 90 s and three of 11 per minute both take 180/11 s, which the model
// rounds to nanoseconds in two ways.
func (s *Store) isTie(a, b weir.Decision) bool {
	return s.Resolution > time.Nanosecond && !a.Allowed && !b.Allowed && a.By != b.By &&
		a.Reason == b.Reason && a.RetryAfter == b.RetryAfter && a.RetryAfter != weir.Never && a.Held == b.Held
}

// roundUp leaves Never, and what no duration could exceed, as it is.
func roundUp(d, to time.Duration) time.Duration {
	if up := (d + to - 1) / to * to; d > 0 && up >= d {
		return up
	}
	return d
}

// show tells every field of a decision; its String leaves some out.
func show(d weir.Decision) string {
	type fields weir.Decision
	return fmt.Sprintf("%+v", fields(d))
}

// admitted is the decision of the policy's first limit on a charge that fitted.
func admitted(limit, remaining int64, reset time.Duration) weir.Decision {
	return weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: limit, Remaining: remaining, ResetAfter: reset}
}

// refused is the decision of the policy's first limit on a charge to be retried.
func refused(limit, remaining int64, retry, reset time.Duration) weir.Decision {
	return weir.Decision{Reason: weir.Exhausted, Limit: limit, Remaining: remaining, RetryAfter: retry, ResetAfter: reset}
}

// tooCostly is the decision of the policy's first limit on what never fits.
func tooCostly(limit, remaining int64, reset time.Duration) weir.Decision {
	return weir.Decision{Reason: weir.TooCostly, Limit: limit, Remaining: remaining, RetryAfter: weir.Never, ResetAfter: reset}
}

// by returns d as the decision of limit i.
func by(i uint8, d weir.Decision) weir.Decision {
	d.By = i
	return d
}

// describe tells a policy with its limits.
func describe(p *weir.Policy) string {
	limits := p.Limits()
	texts := make([]string, len(limits))
	for i, l := range limits {
		texts[i] = fmt.Sprintf("%s: %v", l.Name, l)
		if l.Initial != (weir.Fill{}) {
			texts[i] += fmt.Sprintf(" initial %v", l.Initial)
		}
		if l.MaxDebt != 0 {
			texts[i] += fmt.Sprintf(" max debt %d", l.MaxDebt)
		}
	}
	return fmt.Sprintf("%s [%s]", p.Name(), strings.Join(texts, "; "))
}

// callText describes a call with one charge.
func callText(op string, c weir.Charge) string {
	return fmt.Sprintf("%s %d, key %.40q, under %s", op, c.Cost, c.Key, describe(c.Policy))
}

var opNames = map[weir.Op]string{
	weir.TakeEach: "take each", weir.TakeAll: "take all", weir.ReserveAll: "reserve", weir.PeekEach: "peek",
	weir.Settle: "settle", weir.Renew: "renew", weir.ResetEach: "reset", weir.DebitEach: "debit",
}

// batchText describes a call with a batch.
func batchText(b *weir.Batch) string {
	texts := make([]string, len(b.Charges))
	for i, c := range b.Charges {
		texts[i] = callText("cost", c)
	}
	what := opNames[b.Op]
	if b.Used != nil {
		what += fmt.Sprintf(" after %v were used", b.Used)
	}
	if b.TTL != 0 {
		what += fmt.Sprintf(" for %v", b.TTL)
	}
	return fmt.Sprintf("%s (%s)", what, strings.Join(texts, ") ("))
}
