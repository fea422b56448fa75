package redisstore

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir"
)

// When a master of a cluster fails, one of its replicas is promoted and takes over its slots.
// The other nodes know the new master at once, but the client refreshes its slot table only at
// a random time in the next second, or later if the cluster is large. A sender does not wait
// for that: for a while after a failure, it sends its commands to a healthy node, which
// redirects them (MOVED) to the current master of their slot. That costs one more round trip.
// Until a replica is promoted, the commands fail as they would have without the redirect.
//
// The slots of a send queue are contiguous and mostly have the same master, so the commands for
// all of them are redirected: if only those for slots that have failed were, each slot would
// have to fail once more after the promotion. But some slots may have another master, which is
// healthy, and for these a redirect through a failing node would be worse than none. So slots
// that have not failed are redirected only through a node that has replied to a command that
// was sent after the failure.

// redirectFor is how long commands are redirected after a failure: until the client has refreshed
// its slot table, twice if the first refresh came too early.
const redirectFor = 2 * time.Second

// A healthyNode is a master that has replied to a command, identified by the command's key.
type healthyNode struct {
	key  string
	sent weir.Instant // when the command was sent
}

// healthyFor is how long a healthy node is used before a more recent one replaces it.
const healthyFor = 100 * time.Millisecond

// A route says to which node of a cluster a command is sent.
type route struct {
	slot      uint16
	via       *healthyNode // the node that redirects the command; nil = the master of slot
	candidate *healthyNode // becomes the healthy node if a reply arrives; nil = no change
}

// recentFailures are the failures of a sender in the last redirectFor.
type recentFailures struct {
	at    weir.Instant    // of the last failure; 0 = none
	slots map[uint16]bool // the slots that failed, all of one send queue
}

// sampleKeys returns a key on the slots of each of n send queues.
func sampleKeys(n int) []string {
	keys := make([]string, n)
	for i, missing := 0, n; missing > 0; i++ {
		key := strconv.Itoa(i)
		if at := queueIndex(key, n); keys[at] == "" {
			keys[at] = key
			missing--
		}
	}
	return keys
}

// routeOf returns the route of a command, a call of a script, that is sent now.
func (s *sender) routeOf(cmd rueidis.Completed, now weir.Instant) (w route) {
	if !s.store.cluster {
		return w
	}
	w.slot = cmd.Slot()
	known := s.store.healthy.Load()
	if s.failures.at != 0 && now.Sub(s.failures.at) >= redirectFor {
		s.failures.at = 0
		clear(s.failures.slots)
	}
	failed := s.failures.slots[w.slot]
	switch {
	case s.failures.at != 0 && known != nil && (failed || known.sent > s.failures.at):
		w.via = known
	case failed: // no healthy node is known: try any
		w.via = &healthyNode{key: s.store.queues[rand.IntN(len(s.store.queues))].sampleKey}
	}
	if known != nil && now.Sub(known.sent) <= healthyFor {
		return w
	}
	w.candidate = &healthyNode{sent: now}
	if w.via != nil {
		w.candidate.key = w.via.key // it has replied, if only with MOVED
	} else {
		w.candidate.key = strings.Clone(cmd.Commands()[3]) // after the script's name and the number of keys
	}
	return w
}

// send returns the command, addressed to the route's node.
func (w route) send(cmd rueidis.Completed) rueidis.Completed {
	if w.via == nil {
		return cmd
	}
	return cmd.SetSlot(w.via.key)
}

// noteReply records the result of a command that was sent by a route.
func (s *sender) noteReply(w route, err error) {
	if !s.store.cluster {
		return
	}
	healthy := &s.store.healthy
	if _, answered := rueidis.IsRedisErr(err); err == nil || answered {
		if w.candidate != nil {
			healthy.Store(w.candidate)
		}
		return
	}
	s.failures.at = weir.Now()
	s.failures.slots[w.slot] = true
	if w.via != nil {
		healthy.CompareAndSwap(w.via, nil) // this node may be what failed
	}
}
