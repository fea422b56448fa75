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

// detourFor is how long detours are taken after a failure: until the client has asked for the
// slots, and asked again if that was too early.
const detourFor = 2 * time.Second

// A guide is a key whose master has answered a command.
type guide struct {
	key  string
	sent weir.Instant // the command
}

// guideFor is for how long a guide is good enough that no other is looked for.
const guideFor = 100 * time.Millisecond

// A way is that of a command to a cluster's node.
type way struct {
	slot uint16
	by   *guide // whose master redirects it; nil = it goes straight to its own
	next *guide // what guides from its answer on; nil = as before
}

// lost is what a sender remembers of failures.
type lost struct {
	at    weir.Instant    // the last
	slots map[uint16]bool // that have failed of late; those of a lane at most
}

// signposts returns for each of n lanes a key on its slots.
func signposts(n int) []string {
	keys := make([]string, n)
	for i, missing := 0, n; missing > 0; i++ {
		key := strconv.Itoa(i)
		if at := placeOf(key, n); keys[at] == "" {
			keys[at] = key
			missing--
		}
	}
	return keys
}

// wayOf returns how a command is to go that is sent now, a call of a script.
func (s *sender) wayOf(cmd rueidis.Completed, now weir.Instant) (w way) {
	if !s.store.cluster {
		return w
	}
	w.slot = cmd.Slot()
	known := s.store.answering.Load()
	if s.lost.at != 0 && now.Sub(s.lost.at) >= detourFor {
		s.lost.at = 0
		clear(s.lost.slots)
	}
	failed := s.lost.slots[w.slot]
	switch {
	case s.lost.at != 0 && known != nil && (failed || known.sent > s.lost.at):
		w.by = known
	case failed: // it can hardly get worse
		w.by = &guide{key: s.store.lanes[rand.IntN(len(s.store.lanes))].signpost}
	}
	if known != nil && now.Sub(known.sent) <= guideFor {
		return w
	}
	w.next = &guide{sent: now}
	if w.by != nil {
		w.next.key = w.by.key // it has answered, if only to send the command elsewhere
	} else {
		w.next.key = strings.Clone(cmd.Commands()[3]) // after the script's name and the number of keys
	}
	return w
}

// send returns a command that goes this way.
func (w way) send(cmd rueidis.Completed) rueidis.Completed {
	if w.by == nil {
		return cmd
	}
	return cmd.SetSlot(w.by.key)
}

// arrived notes what became of a command that was sent some way.
func (s *sender) arrived(w way, err error) {
	if !s.store.cluster {
		return
	}
	answering := &s.store.answering
	if _, answered := rueidis.IsRedisErr(err); err == nil || answered {
		if w.next != nil {
			answering.Store(w.next)
		}
		return
	}
	s.lost.at = weir.Now()
	s.lost.slots[w.slot] = true
	if w.by != nil {
		answering.CompareAndSwap(w.by, nil) // it may be what failed
	}
}
