package respapi

import (
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/resp"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
)

// reserve answers WEIR.RESERVE.
func (c *conn) reserve(args [][]byte) {
	ttl := compiled.DefaultTTL.Milliseconds()
	if !c.parseQuery(args, &ttl) {
		return
	}
	if c.query.MaxWait > 0 && !c.flush() { // earlier replies do not wait
		c.closing = true
		return
	}
	v, ticket, err := c.srv.cfg.Core.Reserve(c.srv.ctx, c.caller(), args[1], &c.query, call.Milliseconds(ttl))
	if err != nil {
		c.failWith(err)
		return
	}
	b := resp.AppendArray(c.out, 6)
	if ticket == nil {
		b = c.version.AppendNull(b)
	} else {
		b = resp.AppendBulk(b, ticket.String())
	}
	c.out = appendDecision(b, &v.Decision)
}

// commit answers WEIR.COMMIT.
func (c *conn) commit(args [][]byte) {
	used := ruleset.Used{Costs: c.costs[:0]}
	rest := args[2:]
	if len(rest) > 0 && !isWord(rest[0], "UNIT") {
		n, ok := parseInt(rest[0])
		if !ok {
			c.fail("ERR what was used is not an integer or out of range")
			return
		}
		used.Cost, used.HaveCost, rest = n, true, rest[1:]
	}
	for len(rest) > 0 {
		if len(rest) < 3 || !isWord(rest[0], "UNIT") {
			c.fail("ERR syntax error at '" + clip(rest[0]) + "'")
			return
		}
		n := c.takeUnit(rest, &used.Costs)
		if n == 0 {
			return
		}
		rest = rest[n:]
	}
	c.settle(args[1], used)
}

// cancel answers WEIR.CANCEL.
func (c *conn) cancel(args [][]byte) { c.settle(args[1], ruleset.Used{None: true}) }

func (c *conn) settle(id []byte, used ruleset.Used) {
	settled, err := c.srv.cfg.Core.Settle(c.srv.ctx, c.caller(), string(id), used)
	if err != nil {
		c.failWith(err)
		return
	}
	b := resp.AppendInt(resp.AppendArray(c.out, 3), settled.Refunded)
	c.out = appendFlag(resp.AppendInt(b, settled.Overrun), settled.Late)
}

// renew answers WEIR.RENEW.
func (c *conn) renew(args [][]byte) {
	ttl := compiled.DefaultTTL.Milliseconds()
	if len(args) > 2 && c.takeTTL(args[2], &ttl) == 0 {
		return
	}
	renewed, err := c.srv.cfg.Core.Renew(c.srv.ctx, c.caller(), string(args[1]), call.Milliseconds(ttl))
	if err != nil {
		c.failWith(err)
		return
	}
	if !renewed {
		ttl = 0
	}
	c.out = resp.AppendInt(appendFlag(resp.AppendArray(c.out, 2), renewed), ttl)
}

// appendFlag appends 1 or 0.
func appendFlag(b []byte, x bool) []byte { return resp.RESP2.AppendBool(b, x) }
