package client

import (
	"context"
	"maps"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
)

// Query is a question to the daemon, with all that it can have. Policy is required.
type Query struct {
	Policy string            // its name, for example "default"
	Key    string            // who pays, for example "alice"; "" if all limits are by attributes
	Keys   map[string]string // the attributes that limits are by, for example {"ip": "192.0.2.1"}

	// Costs is what it costs, by unit, for example {"requests": 1, "tokens": 300}. Requests
	// that are left out are one. The default, nil, is one request.
	Costs map[string]int64

	// Peek only looks, and takes nothing.
	Peek bool

	// MaxWait is how long the daemon may have the question wait for its turn, 10 s at most.
	// The default is not at all. The Client's timeout counts from after that.
	MaxWait time.Duration
}

// Answer is what the daemon decided.
type Answer struct {
	weir.Decision        // By is always 0: see LimitedBy
	Policy        string // as asked
	LimitedBy     string // the limit that refused, for example "default.daily"
	Waited        time.Duration
}

// requests is the unit that a check has apart from the others.
const requests = "requests"

// Check asks for one thing, in an exchange of its own. A refusal is an Answer; an error means
// that there is none.
func (c *Client) Check(ctx context.Context, q Query) (Answer, error) {
	if !q.isText() {
		return Answer{}, errEncoding
	}
	q.MaxWait = min(q.MaxWait, time.Hour) // which the daemon refuses, and more might overflow
	req := &weirv1.CheckRequest{Policy: q.Policy, Key: q.Key, Keys: q.Keys, Peek: q.Peek, MaxWaitMs: millis(q.MaxWait)}
	if n, ok := q.Costs[requests]; ok {
		req.Cost = proto.Int64(n)
	}
	req.Costs = maps.Clone(q.Costs)
	delete(req.Costs, requests)
	a, err := exchange(ctx, c, c.timeout+max(q.MaxWait, 0), c.service.Check, req)
	if err != nil {
		return Answer{}, err
	}
	d := wireDecision{
		allowed: a.GetAllowed(), limit: a.GetLimit(), remaining: a.GetRemaining(), retry: a.GetRetryAfterMs(), reset: a.GetResetAfterMs(), reason: a.GetReason(),
	}.decision(nil)
	return Answer{Decision: d, Policy: a.GetPolicy(), LimitedBy: a.GetLimitedBy(), Waited: lasting(a.GetDelayMs())}, nil
}

// isText says whether protobuf has strings for all that a question has.
func (q *Query) isText() bool {
	ok := utf8.ValidString(q.Policy) && utf8.ValidString(q.Key)
	for name, value := range q.Keys {
		ok = ok && utf8.ValidString(name) && utf8.ValidString(value)
	}
	for unit := range q.Costs {
		ok = ok && utf8.ValidString(unit)
	}
	return ok
}
