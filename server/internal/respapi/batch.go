package respapi

import (
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/resp"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
)

// maxBatch is the maximum number of commands of a batch.
const maxBatch = 256

// A batch is a sequence of commands in a pipeline that are decided by one call, all WEIR.CHECK
// or all CL.THROTTLE. With a store on the network that is one round trip; in memory the clock is
// read once, and the rows of all commands are prefetched together.
type batch struct {
	items    []ruleset.Item
	verdicts []ruleset.Verdict

	throttled weir.Batch // only if items is empty
	limits    []int64    // of the throttled charges, for the replies
}

func (b *batch) size() int { return len(b.items) + len(b.throttled.Charges) }

// batches is shared by all connections; idle ones hold none.
var batches = sync.Pool{New: func() any { return &batch{throttled: weir.Batch{Op: weir.TakeEach}} }}

// free clears the batch, so that it refers to no keys, and returns it to the pool.
func (b *batch) free() {
	clear(b.items)
	clear(b.throttled.Charges)
	b.items, b.verdicts = b.items[:0], b.verdicts[:0]
	b.throttled.Charges, b.limits = b.throttled.Charges[:0], b.limits[:0]
	batches.Put(b)
}

// enqueue adds the query to the batch, to be decided together with those that follow. Replies
// are in order, so decideBatch is called before any other reply. The read buffer keeps commands,
// and so the query's key, until all commands in it are answered.
func (c *conn) enqueue(rule *ruleset.Rule) {
	b := c.needBatch()
	b.items = slices.Grow(b.items, 1)[:len(b.items)+1]
	i := &b.items[len(b.items)-1] // free has cleared it; only the fields that are used are set
	q := &i.Query
	i.Rule, q.Key, q.Cost, q.Implied = rule, c.query.Key, c.query.Cost, c.query.Implied
	q.Client, q.Alone, q.Class = c.query.Client, c.query.Alone, c.query.Class
}

// enqueueThrottle does the same with a CL.THROTTLE.
func (c *conn) enqueueThrottle(charge weir.Charge, limit int64) {
	b := c.needBatch()
	b.throttled.Charges, b.limits = append(b.throttled.Charges, charge), append(b.limits, limit)
}

func (c *conn) needBatch() *batch {
	if c.batch == nil {
		c.batch = batches.Get().(*batch)
	}
	return c.batch
}

// decideBatch decides the commands of the batch, if there is one, and replies.
func (c *conn) decideBatch() {
	b := c.batch
	if b == nil {
		return
	}
	c.batch = nil
	defer b.free()
	if len(b.throttled.Charges) > 0 {
		c.throttleEach(b)
		return
	}
	c.checkEach(b)
}

func (c *conn) checkEach(b *batch) {
	core := c.srv.cfg.Core
	verdicts, err := core.EvaluateBatch(c.srv.ctx, c.state, call.Each, b.items, b.verdicts)
	switch {
	case err == nil:
		b.verdicts = verdicts
		core.ObserveEach(b.items, verdicts, c.tookEach(len(b.items)))
		for i := range verdicts {
			c.out = appendDecision(resp.AppendArray(c.out, 5), &verdicts[i].Decision)
		}
	case err.Item != call.NoItem: // nothing was charged
		c.decideEach(b.items)
	default:
		for range b.items {
			c.failWith(err)
		}
	}
}

// tookEach is took for n decisions that were made together: each gets the nth part.
func (c *conn) tookEach(n int) time.Duration {
	took := c.took()
	if took == ruleset.Untimed {
		return took
	}
	return took / time.Duration(n)
}

// decideEach decides one after the other.
func (c *conn) decideEach(items []ruleset.Item) {
	for i := range items {
		c.decide(items[i].Rule, &items[i].Query, false)
	}
}
