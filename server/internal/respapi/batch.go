package respapi

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/resp"
)

// maxBatch is how many checks are decided together.
const maxBatch = 256

// gather puts the query aside to be decided together with those that follow, if that is
// wanted. Replies come in order, so decideBatch comes before every other reply.
func (c *conn) gather(rule *guard.Rule) bool {
	if !c.srv.cfg.Batch {
		return false
	}
	q := c.query
	q.Key, q.Keys, q.Costs = strings.Clone(q.Key), slices.Clone(q.Keys), slices.Clone(q.Costs)
	c.batch = append(c.batch, guard.Item{Rule: rule, Query: q})
	return true
}

// decideBatch decides on what was gathered, and replies.
func (c *conn) decideBatch() {
	if len(c.batch) == 0 {
		return
	}
	items := c.batch
	c.batch = c.batch[:0]
	defer clear(items)
	if len(items) == 1 {
		c.putEach(items)
		return
	}
	verdicts, err := c.srv.cfg.Guard.CheckEach(c.srv.ctx, items)
	if errors.As(err, new(*guard.ItemError)) { // nothing was charged
		c.putEach(items)
		return
	}
	took := c.took()
	if took != guard.Untimed {
		took /= time.Duration(len(items))
	}
	for i := range items {
		if err != nil {
			c.failUndecided(items[i].Rule.Name(), err)
			continue
		}
		c.query = items[i].Query
		c.tell(&verdicts[i], took, false)
		c.out = appendDecision(resp.AppendArray(c.out, 5), &verdicts[i].Decision)
	}
}

// putEach decides on one after the other.
func (c *conn) putEach(items []guard.Item) {
	for i := range items {
		c.query = items[i].Query
		c.put(items[i].Rule, false)
	}
}
