package redisstore

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir"
)

// When a master of a cluster fails, its slots get another one. The other nodes know it at
// once, but the client asks them only at some moment of the next second, or later if there
// are many. A sender does not wait for that: after a failure, its commands take a detour for
// a while. They go to a master that gets answers, which redirects them to whoever has their
// slot by now. That costs a round trip more; and while nobody has taken over, they fail as
// they would have anyway.
//
// A lane's slots are neighbours and mostly have the same master, so all of them take the
// detour: were it those alone that have failed, each would have to fail once more after the
// heir is there. But some may have another master that is well, and for these a detour by way
// of one that fails would be worse than none. So they take it only if the way was tried
// after the failure.

// redirectFor is how long detours are taken after a failure: until the client has asked for the
// slots, and asked again if that was too early.
const redirectFor = 2 * time.Second

// A guide is a key whose master has answered a command.
type healthyNode struct {
	key  string
	sent weir.Instant // the command
}

// healthyFor is for how long a guide is good enough that no other is looked for.
const healthyFor = 100 * time.Millisecond

// A way is that of a command to a cluster's node.
type route struct {
	slot      uint16
	via       *healthyNode // whose master redirects it; nil = it goes straight to its own
	candidate *healthyNode // what guides from its answer on; nil = as before
}

// lost is what a sender remembers of failures.
type recentFailures struct {
	at    weir.Instant    // the last
	slots map[uint16]bool // that have failed of late; those of a lane at most
}

// sampleKeys returns for each of n lanes a key on its slots.
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

// routeOf returns how a command is to go that is sent now, a call of a script.
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
	case failed: // it can hardly get worse
		w.via = &healthyNode{key: s.store.queues[rand.IntN(len(s.store.queues))].sampleKey}
	}
	if known != nil && now.Sub(known.sent) <= healthyFor {
		return w
	}
	w.candidate = &healthyNode{sent: now}
	if w.via != nil {
		w.candidate.key = w.via.key // it has answered, if only to send the command elsewhere
	} else {
		w.candidate.key = strings.Clone(cmd.Commands()[3]) // after the script's name and the number of keys
	}
	return w
}

// send returns a command that goes this way.
func (w route) send(cmd rueidis.Completed) rueidis.Completed {
	if w.via == nil {
		return cmd
	}
	return cmd.SetSlot(w.via.key)
}

// arrived notes what became of a command that was sent some way.
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
		healthy.CompareAndSwap(w.via, nil) // it may be what failed
	}
}
