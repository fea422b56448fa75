package client

import (
	"errors"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/weirlimit/weir"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/storeapi"
)

// Maximum sizes of a batch: the daemon accepts a thousand checks and 64 KiB.
const (
	maxChecks = 1000
	maxBytes  = 48 << 10
	perCheck  = 16 // bytes that a check takes besides its key, at most
)

// errEncoding is the error of strings that are not UTF-8, which protobuf requires.
var errEncoding = compiled.Invalid("a key or a name is not UTF-8: encode it, for example in hex")

// errColumns is the error of an invalid response to a batch.
var errColumns = errors.New("the response's columns do not fit the request")

// check returns an error if a charge is invalid.
func check(c *weir.Charge) error {
	if err := storeapi.CheckCharge(c.Policy, c.Key, c.Cost); err != nil {
		return err
	}
	if !utf8.ValidString(c.Key) {
		return errEncoding
	}
	return nil
}

// columns is the request of a batch.
type columns struct {
	req   *weirv1.CheckBatchRequest
	last  int // the index of the last charge's policy in req.Policy
	class int // the index of the last charge's class in req.Class
}

func newColumns(n int) columns {
	return columns{req: &weirv1.CheckBatchRequest{
		Key: make([]string, 0, n), Cost: make([]int64, 0, n), PolicyIndex: make([]uint32, 0, n),
	}}
}

// add adds a check.
func (c *columns) add(p *weir.Policy, key string, cost int64) {
	c.last = place(&c.req.Policy, c.last, p.Name())
	if class := p.ClassName(); class != "" || len(c.req.Class) > 0 {
		c.addClass(class)
	}
	c.req.Key = append(c.req.Key, key)
	c.req.Cost = append(c.req.Cost, cost)
	c.req.PolicyIndex = append(c.req.PolicyIndex, uint32(c.last))
}

// addClass adds the class of a check. Those before the first that has one have none.
func (c *columns) addClass(name string) {
	if before := len(c.req.Key); len(c.req.Class) == 0 && before > 0 {
		c.req.Class, c.req.ClassIndex = []string{""}, make([]uint32, before, cap(c.req.Key))
	}
	c.class = place(&c.req.Class, c.class, name)
	c.req.ClassIndex = append(c.req.ClassIndex, uint32(c.class))
}

// place returns the index of a name in a list, which is mostly the last one that was returned. A new
// name is appended.
func place(list *[]string, last int, name string) int {
	if last < len(*list) && (*list)[last] == name {
		return last
	}
	if i := slices.Index(*list, name); i >= 0 {
		return i
	}
	*list = append(*list, name)
	return len(*list) - 1
}

// checkColumns returns errColumns unless every column of a response has n entries, or none if it is
// optional, and all indexes are valid.
func checkColumns(a *weirv1.CheckBatchResponse, n int) error {
	ok := len(a.GetAllowed()) == n
	for _, length := range []int{
		len(a.GetLimit()), len(a.GetRemaining()), len(a.GetRetryAfterMs()), len(a.GetResetAfterMs()), len(a.GetLimitedByIndex()), len(a.GetReasonIndex()),
	} {
		ok = ok && (length == n || length == 0)
	}
	for _, i := range a.GetReasonIndex() {
		ok = ok && int(i) < len(a.GetReason())
	}
	for _, i := range a.GetLimitedByIndex() {
		ok = ok && int(i) < len(a.GetLimitedBy())
	}
	if !ok {
		return errColumns
	}
	return nil
}

// at returns an entry of a column, or zero if the column was left out.
func at[T any](column []T, i int) (zero T) {
	if len(column) == 0 {
		return zero
	}
	return column[i]
}

// decision returns the i-th decision of a batch's answer, whose columns were checked.
func decision(p *weir.Policy, a *weirv1.CheckBatchResponse, i int) weir.Decision {
	return wireDecision{
		allowed: a.GetAllowed()[i], limit: at(a.GetLimit(), i), remaining: at(a.GetRemaining(), i),
		retry: at(a.GetRetryAfterMs(), i), reset: at(a.GetResetAfterMs(), i),
		by: at(a.GetLimitedBy(), int(at(a.GetLimitedByIndex(), i))), reason: at(a.GetReason(), int(at(a.GetReasonIndex(), i))),
	}.decision(p)
}

// wireDecision is a decision as all answers have it.
type wireDecision struct {
	allowed          bool
	limit, remaining int64
	retry, reset     int64 // milliseconds, -1 for never
	by, reason       string
}

func (w wireDecision) decision(p *weir.Policy) weir.Decision {
	return weir.Decision{
		Allowed: w.allowed, Reason: w.parseReason(), By: limitOf(p, w.by),
		Limit: w.limit, Remaining: w.remaining, RetryAfter: lasting(w.retry), ResetAfter: lasting(w.reset),
	}
}

// parseReason returns the reason of a name. One that we do not know, of a newer daemon, is what
// the rest says it is.
func (w wireDecision) parseReason() weir.Reason {
	for r := weir.NotCharged; r <= weir.Blocked; r++ {
		if r.String() == w.reason {
			return r
		}
	}
	switch {
	case w.allowed:
		return weir.Admitted
	case w.retry < 0:
		return weir.TooCostly
	}
	return weir.Exhausted
}

// limitOf returns the place of a limit, by the name that the daemon tells. Where the policy here
// has no such limit it is the first.
func limitOf(p *weir.Policy, name string) uint8 {
	if name == "" {
		return 0
	}
	for i := range p.Compiled().Rules {
		if p.LimitName(i) == name {
			return uint8(i)
		}
	}
	return 0
}

// millis returns a time as the daemon takes it: in whole milliseconds, rounded up. It says itself
// what is wrong with one that is negative.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// lasting returns a time as the daemon tells it.
func lasting(ms int64) time.Duration {
	if ms < 0 {
		return weir.Never
	}
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}
