package redisconn

import (
	"context"
	"slices"

	"github.com/redis/rueidis"
)

// An Evictor is a server that discards keys when its memory is full.
type Evictor struct {
	Addr   string
	Policy string // maxmemory-policy, for example "allkeys-lru"
}

// Evictors returns the servers which take writes and discard keys when maxmemory is reached. All
// of weir's keys expire, so that those are discarded under any policy but noeviction. A
// server that does not say is not among them: INFO may be forbidden.
func (c *Conn) Evictors(ctx context.Context) (list []Evictor) {
	masters, err := c.masters(ctx)
	if err != nil {
		return nil
	}
	nodes := c.Client.Nodes()
	slices.Sort(masters)
	for _, addr := range masters {
		node := nodes[addr]
		if node == nil {
			continue
		}
		if policy, evicts := c.askEviction(ctx, node); evicts {
			list = append(list, Evictor{addr, policy})
		}
	}
	return list
}

func (c *Conn) askEviction(ctx context.Context, node rueidis.Client) (policy string, evicts bool) {
	ctx, cancel := context.WithTimeout(ctx, c.config.DialTimeout+c.config.Timeout)
	defer cancel()
	text, err := node.Do(ctx, node.B().Info().Section("memory").Build()).ToString()
	if err != nil {
		return "", false
	}
	fields := infoFields(text)
	policy, most := fields["maxmemory_policy"], fields["maxmemory"]
	return policy, policy != "" && policy != "noeviction" && most != "" && most != "0"
}
