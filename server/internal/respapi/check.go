package respapi

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/resp"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
)

// maxOptions is the maximum number of attributes, or units, in a command of maxArgs arguments.
const maxOptions = (maxArgs - 3) / 3

// check answers WEIR.CHECK, in a batch if it is part of a pipeline. Limiters and observers do
// not retain keys, so the query's key refers to the memory of the command.
func (c *conn) check(args [][]byte) {
	rule := c.rule(args[1])
	switch {
	case rule == nil || !c.parseQuery(args, nil) || !c.own(rule):
	case c.isPlain() && (c.batch != nil || c.in.Partial()):
		c.enqueue(rule)
	default:
		c.decideBatch() // replies are in order
		c.decide(rule, &c.query, false)
	}
}

// isPlain reports whether the query has no other options than CLASS. Others are not batched.
func (c *conn) isPlain() bool { return len(c.query.Keys) == 0 && len(c.query.Costs) == 0 }

// peek answers WEIR.PEEK.
func (c *conn) peek(args [][]byte) {
	if rule := c.rule(args[1]); rule != nil && c.parseQuery(args, nil) && c.own(rule) {
		c.decide(rule, &c.query, true)
	}
}

// decide decides a query and replies.
func (c *conn) decide(rule *ruleset.Rule, q *ruleset.Query, peek bool) {
	v, err := c.srv.cfg.Core.Evaluate(c.srv.ctx, c.state, rule, q, peek)
	if err != nil {
		c.failWith(err)
		return
	}
	c.srv.cfg.Core.Record(q, &v, peek, c.took())
	c.out = appendDecision(resp.AppendArray(c.out, 5), &v.Decision)
}

// caller returns the authenticated caller.
func (c *conn) caller() call.Caller { return call.Caller{State: c.state, Client: c.session.client} }

// rule returns the policy with a name, or replies with an error and returns nil. Usually it is the
// same as before.
func (c *conn) rule(name []byte) *ruleset.Rule {
	if c.ruled != nil && c.ruledBy == c.caller() && c.ruled.Name() == string(name) {
		return c.ruled
	}
	rule, err := c.caller().Rule(name)
	if err != nil {
		c.failWith(err)
		return nil
	}
	c.ruled, c.ruledBy = rule, c.caller()
	return rule
}

// own makes the caller the client of the query, or replies with an error and returns false.
func (c *conn) own(rule *ruleset.Rule) bool {
	if err := c.caller().Own(rule, &c.query); err != nil {
		c.failWith(err)
		return false
	}
	return true
}

// parseQuery parses the arguments into the query and, if ttl is not nil, *ttl in milliseconds. It
// replies with an error and returns false if they are invalid.
func (c *conn) parseQuery(args [][]byte, ttl *int64) bool {
	q := &c.query
	q.Key = textOf(args[2]) // it is not retained: see check and enqueue
	if ttl != nil {
		q.Key = string(args[2])
	}
	q.Cost, q.Implied, q.Keys, q.Costs, q.MaxWait, q.Class, q.Plan, q.Methods = 1, true, c.keys[:0], c.costs[:0], 0, "", "", nil
	rest := args[3:]
	if len(rest) > 0 {
		if n, ok := parseInt(rest[0]); ok {
			q.Cost, q.Implied, rest = n, false, rest[1:]
		}
	}
	for len(rest) > 0 {
		used := c.option(rest, ttl)
		if used == 0 {
			return false
		}
		rest = rest[used:]
	}
	return true
}

// option parses the option at the start of args and returns how many arguments it has, or
// replies with an error and returns 0.
func (c *conn) option(args [][]byte, ttl *int64) int {
	switch name := args[0]; {
	case isWord(name, "BY") && len(args) > 2:
		c.query.Keys = append(c.query.Keys, ruleset.Attribute{Name: string(args[1]), Value: string(args[2])})
		return 3
	case isWord(name, "UNIT") && len(args) > 2:
		return c.takeUnit(args, &c.query.Costs)
	case isWord(name, "METHOD") && len(args) > 1:
		c.query.Methods = append(c.query.Methods, string(args[1]))
		return 2
	case isWord(name, "TTL") && ttl != nil && len(args) > 1:
		return c.takeTTL(args[1], ttl)
	case isWord(name, "MAXWAIT") && ttl != nil && len(args) > 1:
		return c.takeMaxWait(args[1])
	case isWord(name, "CLASS") && len(args) > 1 && c.query.Class == "": // a second one is an error
		c.query.Class = textOf(args[1]) // it is not retained
		return 2
	}
	c.fail("ERR syntax error at '" + clip(args[0]) + "'")
	return 0
}

// takeUnit parses UNIT name amount. Like option it returns how many arguments that are, or 0.
func (c *conn) takeUnit(args [][]byte, costs *[]ruleset.Cost) int {
	n, ok := parseInt(args[2])
	if !ok {
		c.fail("ERR the amount of a UNIT is not an integer or out of range")
		return 0
	}
	*costs = append(*costs, ruleset.Cost{Unit: string(args[1]), Amount: n})
	return 3
}

// takeTTL parses the TTL of a reservation, in milliseconds.
func (c *conn) takeTTL(arg []byte, ttl *int64) int {
	n, ok := parseInt(arg)
	if !ok || n < 1 || n > compiled.MaxTTL.Milliseconds() {
		c.fail(fmt.Sprintf("ERR a TTL is between 1 and %d ms", compiled.MaxTTL.Milliseconds()))
		return 0
	}
	*ttl = n
	return 2
}

// takeMaxWait parses how long a reservation may wait, in milliseconds.
func (c *conn) takeMaxWait(arg []byte) int {
	n, ok := parseInt(arg)
	if !ok || n < 0 || n > ruleset.MaxWait.Milliseconds() {
		c.fail(fmt.Sprintf("ERR MAXWAIT is between 0 and %d ms", ruleset.MaxWait.Milliseconds()))
		return 0
	}
	c.query.MaxWait = call.Milliseconds(n)
	return 2
}

// In one of timedOne rounds, beginning with a connection's first, the first decision is timed. To
// read the clock for each decision and to record the duration would be a large part of the cost
// of a pipelined decision.
const timedOne = 16

// beginTiming begins a round: it is called when commands have arrived.
func (c *conn) beginTiming() {
	if c.timing = c.rounds%timedOne == 0; c.timing {
		c.clock = weir.Now()
	}
	c.rounds++
}

// took returns the time since the current commands arrived, for the first decision of a timed
// round, and ruleset.Untimed otherwise.
func (c *conn) took() time.Duration {
	if !c.timing {
		return ruleset.Untimed
	}
	c.timing = false
	return weir.Now().Sub(c.clock)
}

// appendDecision appends five integers: allowed, limit, remaining, retry_ms, reset_ms.
func appendDecision(b []byte, d *weir.Decision) []byte {
	allowed, retry := int64(1), int64(0)
	if !d.Allowed {
		allowed, retry = 0, cmp.Or(roundUp(d.RetryAfter, time.Millisecond), 1) // a client that waits 0 ms after a refusal would spin
	}
	b = resp.AppendInt(resp.AppendInt(b, allowed), d.Limit)
	b = resp.AppendInt(resp.AppendInt(b, d.Remaining), retry)
	return resp.AppendInt(b, roundUp(d.ResetAfter, time.Millisecond))
}

// roundUp returns d in whole units, so that waiting that long is never too short. Never
// is -1.
func roundUp(d, unit time.Duration) int64 {
	if d == weir.Never {
		return -1
	}
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// codes are the words with which Redis begins the errors of these kinds.
var codes = map[call.Kind]string{call.Forbidden: "NOPERM ", call.Unauthenticated: "NOAUTH "}

// failWith replies to a command for which there is no decision.
func (c *conn) failWith(err *call.Error) {
	code := cmp.Or(codes[err.Kind], "ERR ")
	if option := options[err.Field]; option != "" {
		c.fail(code + option + " " + err.Problem)
		return
	}
	c.fail(code + strings.TrimPrefix(err.Error(), "weir: "))
}

// options are the names that commands have for the fields of a query.
var options = map[string]string{"keys": "BY", "cost": "the cost", "used": "what was used", "key": "the key", "class": "CLASS", "method": "METHOD", "id": "the id"}
