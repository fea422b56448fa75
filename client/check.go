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

// Query is a request for a decision, with all options of the daemon. Policy is required.
type Query struct {
	Policy string            // its name, for example "default"
	Key    string            // the rate-limit key, for example "alice"; "" if all limits are by attributes
	Keys   map[string]string // the attributes that limits are by, for example {"ip": "192.0.2.1"}

	// Costs are the costs by unit, for example {"requests": 1, "tokens": 300}. Without
	// "requests", that cost is 1. The default, nil, is one request.
	Costs map[string]int64

	// Class is the class of work, for example "realtime", under a policy with classes. The default
	// is the class with the least guaranteed share, the last one of several or, if the daemon's
	// configuration does not grant that one to the client, the only class that it grants.
	Class string

	// Peek returns the decision without charging.
	Peek bool

	// MaxWait is how long the request may wait for capacity, at most 10 s. The default is not
	// to wait. The Client's timeout is added to it.
	MaxWait time.Duration
}

// Answer is the daemon's decision.
type Answer struct {
	weir.Decision        // By is always 0: see LimitedBy
	Policy        string // of the query
	LimitedBy     string // the limit that refused, for example "default.daily"
	Waited        time.Duration
}

// requests is the unit whose cost has a field of its own.
const requests = "requests"

// Check requests one decision, in a request of its own. A refusal is an Answer; an error means
// that there is no decision.
func (c *Client) Check(ctx context.Context, q Query) (Answer, error) {
	if !q.isText() {
		return Answer{}, errEncoding
	}
	q.MaxWait = min(q.MaxWait, time.Hour) // the daemon refuses an hour; more might overflow
	req := &weirv1.CheckRequest{Policy: q.Policy, Key: q.Key, Keys: q.Keys, Class: q.Class, Peek: q.Peek, MaxWaitMs: millis(q.MaxWait)}
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

// isText reports whether all strings of a query are valid UTF-8, as protobuf requires.
func (q *Query) isText() bool {
	ok := utf8.ValidString(q.Policy) && utf8.ValidString(q.Key) && utf8.ValidString(q.Class)
	for name, value := range q.Keys {
		ok = ok && utf8.ValidString(name) && utf8.ValidString(value)
	}
	for unit := range q.Costs {
		ok = ok && utf8.ValidString(unit)
	}
	return ok
}
