package respapi

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/resp"
)

// maxBatch is how many checks are decided together.
const maxBatch = 256

// A batch is checks that follow each other in a pipeline and are decided by one call to
// the limiter: over a network that is one round trip, and in memory one reading of the
// clock, and the processor fetches the rows of all of them at once.
type batch struct {
	items    []guard.Item
	verdicts []guard.Verdict
	records  []guard.Record
}

// batches are used again, by any connection: idle ones have none.
var batches = sync.Pool{New: func() any { return new(batch) }}

// free gives the batch back, without the callers' keys.
func (b *batch) free() {
	clear(b.items)
	clear(b.records)
	b.items, b.verdicts, b.records = b.items[:0], b.verdicts[:0], b.records[:0]
	batches.Put(b)
}

// gather puts the query aside to be decided together with those that follow. Replies come
// in order, so decideBatch comes before every other reply. Commands stay where they were
// read until all that came with them are answered, and so does the query's key.
func (c *conn) gather(rule *guard.Rule) {
	if c.batch == nil {
		c.batch = batches.Get().(*batch)
	}
	c.batch.items = append(c.batch.items, guard.Item{Rule: rule, Query: c.query})
}

// decideBatch decides on what was gathered, and replies.
func (c *conn) decideBatch() {
	b := c.batch
	if b == nil {
		return
	}
	c.batch = nil
	defer b.free()
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

// tellEach reports the decisions to those who watch. They were timed together, which is one
// measurement.
func (c *conn) tellEach(b *batch) {
	took := c.took()
	if took != guard.Untimed {
		took /= time.Duration(len(b.items))
	}
	for i := range b.items {
		q := &b.items[i].Query
		b.records = append(b.records, guard.Record{Verdict: b.verdicts[i], Key: q.Key, Cost: q.Cost, Client: q.Client, Took: took})
		took = guard.Untimed
	}
	c.srv.cfg.ObserveEach(b.records)
}

// putEach decides on one after the other.
func (c *conn) putEach(items []guard.Item) {
	for i := range items {
		c.query = items[i].Query
		c.put(items[i].Rule, false)
	}
}
