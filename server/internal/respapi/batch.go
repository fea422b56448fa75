package respapi

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/resp"
	"github.com/weirlimit/weir/ruleset"
)

// maxBatch is the maximum number of commands of a batch.
const maxBatch = 256

// A batch is a sequence of commands in a pipeline that are decided by one call, all WEIR.CHECK
// or all CL.THROTTLE. With a store on the network that is one round trip; in memory the clock is
// read once, and the rows of all commands are prefetched together.
type batch struct {
	items    []ruleset.Item
	verdicts []ruleset.Verdict

	requests []ThrottleRequest // only if items is empty
}

func (b *batch) size() int { return len(b.items) + len(b.requests) }

// batches is shared by all connections; idle ones hold none.
var batches = sync.Pool{New: func() any { return new(batch) }}

// free clears the batch, so that it refers to no keys, and returns it to the pool.
func (b *batch) free() {
	clear(b.items)
	clear(b.requests)
	b.items, b.verdicts, b.requests = b.items[:0], b.verdicts[:0], b.requests[:0]
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
	i.Rule, q.Key, q.Cost, q.Client = rule, c.query.Key, c.query.Cost, c.query.Client
}

// enqueueThrottle does the same with a CL.THROTTLE.
func (c *conn) enqueueThrottle(key []byte, n Params, quantity int64) {
	b := c.needBatch()
	b.requests = slices.Grow(b.requests, 1)[:len(b.requests)+1]
	a := &b.requests[len(b.requests)-1] // as above
	a.Key, a.Params, a.Quantity = key, n, quantity
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
	if len(b.requests) > 0 {
		c.throttleEach(b.requests)
		return
	}
	c.checkEach(b)
}

func (c *conn) throttleEach(requests []ThrottleRequest) {
	c.srv.cfg.Throttler.ThrottleEach(c.srv.ctx, c.clientName(), requests)
	c.observeThrottled(requests)
	for i := range requests {
		if err := requests[i].Err; err != nil {
			c.failUndecided(throttleName, err)
			continue
		}
		c.out = appendThrottled(c.out, requests[i].Params.Burst, &requests[i].Decision)
	}
}

func (c *conn) checkEach(b *batch) {
	b.verdicts = slices.Grow(b.verdicts, len(b.items))[:len(b.items)]
	err := c.srv.cfg.Engine.CheckEachInto(c.srv.ctx, b.items, b.verdicts)
	switch {
	case err == nil:
		c.observeEach(b)
		for i := range b.verdicts {
			c.out = appendDecision(resp.AppendArray(c.out, 5), &b.verdicts[i].Decision)
		}
	case errors.As(err, new(*ruleset.ItemError)): // nothing was charged
		c.decideEach(b.items)
	default:
		for i := range b.items {
			c.failUndecided(b.items[i].Rule.Name(), err)
		}
	}
}

// observeEach reports the decisions to those who watch.
func (c *conn) observeEach(b *batch) {
	c.srv.cfg.ObserveEach(b.items, b.verdicts, c.tookEach(len(b.items)))
}

// tookEach is took for n decisions that were made together: each gets the nth part.
func (c *conn) tookEach(n int) time.Duration {
	took := c.took()
	if took == ruleset.Untimed {
		return took
	}
	return took / time.Duration(n)
}

// putEach decides on one after the other.
func (c *conn) decideEach(items []ruleset.Item) {
	for i := range items {
		c.query = items[i].Query
		c.decide(items[i].Rule, false)
	}
}
