package respapi

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/resp"
)

// maxBatch is how many commands are decided together.
const maxBatch = 256

// A batch is commands that follow each other in a pipeline and are decided by one call, all
// WEIR.CHECK or all CL.THROTTLE: over a network that is one round trip, and in memory one
// reading of the clock, and the processor fetches the rows of all of them at once.
type batch struct {
	items    []guard.Item
	verdicts []guard.Verdict

	asks []Ask // instead
}

func (b *batch) size() int { return len(b.items) + len(b.asks) }

// batches are used again, by any connection: idle ones have none.
var batches = sync.Pool{New: func() any { return new(batch) }}

// free gives the batch back, without the callers' keys.
func (b *batch) free() {
	clear(b.items)
	clear(b.asks)
	b.items, b.verdicts, b.asks = b.items[:0], b.verdicts[:0], b.asks[:0]
	batches.Put(b)
}

// gather puts the query aside to be decided together with those that follow. Replies come
// in order, so decideBatch comes before every other reply. Commands stay where they were
// read until all that came with them are answered, and so does the query's key.
func (c *conn) gather(rule *guard.Rule) {
	b := c.needBatch()
	b.items = slices.Grow(b.items, 1)[:len(b.items)+1]
	i := &b.items[len(b.items)-1] // free has cleared it; a whole one would be copied
	q := &i.Query
	i.Rule, q.Key, q.Cost, q.Client = rule, c.query.Key, c.query.Cost, c.query.Client
}

// gatherAsk does the same with a CL.THROTTLE.
func (c *conn) gatherAsk(key []byte, n Numbers, quantity int64) {
	b := c.needBatch()
	b.asks = slices.Grow(b.asks, 1)[:len(b.asks)+1]
	a := &b.asks[len(b.asks)-1] // as above
	a.Key, a.Numbers, a.Quantity = key, n, quantity
}

func (c *conn) needBatch() *batch {
	if c.batch == nil {
		c.batch = batches.Get().(*batch)
	}
	return c.batch
}

// decideBatch decides on what was gathered, and replies.
func (c *conn) decideBatch() {
	b := c.batch
	if b == nil {
		return
	}
	c.batch = nil
	defer b.free()
	if len(b.asks) > 0 {
		c.throttleEach(b.asks)
		return
	}
	c.checkEach(b)
}

func (c *conn) throttleEach(asks []Ask) {
	c.srv.cfg.Throttler.ThrottleEach(c.srv.ctx, c.clientName(), asks)
	c.tellThrottled(asks)
	for i := range asks {
		if err := asks[i].Err; err != nil {
			c.failUndecided(throttleName, err)
			continue
		}
		c.out = appendThrottled(c.out, asks[i].Numbers.Burst, &asks[i].Decision)
	}
}

func (c *conn) checkEach(b *batch) {
	b.verdicts = slices.Grow(b.verdicts, len(b.items))[:len(b.items)]
	err := c.srv.cfg.Guard.CheckEachInto(c.srv.ctx, b.items, b.verdicts)
	switch {
	case err == nil:
		c.tellEach(b)
		for i := range b.verdicts {
			c.out = appendDecision(resp.AppendArray(c.out, 5), &b.verdicts[i].Decision)
		}
	case errors.As(err, new(*guard.ItemError)): // nothing was charged
		c.putEach(b.items)
	default:
		for i := range b.items {
			c.failUndecided(b.items[i].Rule.Name(), err)
		}
	}
}

// tellEach reports the decisions to those who watch.
func (c *conn) tellEach(b *batch) {
	c.srv.cfg.ObserveEach(b.items, b.verdicts, c.tookEach(len(b.items)))
}

// tookEach is took for n decisions that were made together, which is one measurement.
func (c *conn) tookEach(n int) time.Duration {
	took := c.took()
	if took == guard.Untimed {
		return took
	}
	return took / time.Duration(n)
}

// putEach decides on one after the other.
func (c *conn) putEach(items []guard.Item) {
	for i := range items {
		c.query = items[i].Query
		c.put(items[i].Rule, false)
	}
}
