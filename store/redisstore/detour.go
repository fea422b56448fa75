package redisstore

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir"
)

// When a master of a cluster fails, its slots get another one. The other nodes know it at
// once, but the client asks them only at a random moment of the next second. A sender does
// not wait for that: after a failure, commands for the same slot take a detour. They go to
// the master of a lane that gets answers, which redirects them to whoever has their slot by
// now. That costs a round trip more; and while nobody has taken over, they fail as they
// would have anyway.

// detourFor is how long detours are taken after a failure: until the client has asked for the
// slots, and asked again if that was too early.
const detourFor = 2 * time.Second

// A way is that of a command to a cluster's node.
type way struct {
	slot uint16
	via  *lane // whose master redirects it; nil = it goes straight to its own
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

// wayOf returns how a command is to go.
func (s *sender) wayOf(cmd rueidis.Completed) way {
	w := way{slot: cmd.Slot()}
	until, lost := s.lost[w.slot]
	switch {
	case !lost:
	case weir.Now() >= until:
		delete(s.lost, w.slot)
	default:
		if w.via = s.store.answering.Load(); w.via == nil {
			w.via = s.store.lanes[rand.IntN(len(s.store.lanes))]
		}
	}
	return w
}

// send returns a command that goes this way.
func (w way) send(cmd rueidis.Completed) rueidis.Completed {
	if w.via == nil {
		return cmd
	}
	return cmd.SetSlot(w.via.signpost)
}

// arrived notes what became of a command that went some way.
func (s *sender) arrived(w way, err error) {
	if !s.store.cluster {
		return
	}
	through, answering := w.via, &s.store.answering
	if through == nil {
		through = s.lane
	}
	if _, answered := rueidis.IsRedisErr(err); err == nil || answered {
		if answering.Load() == nil {
			answering.Store(through)
		}
		return
	}
	s.lost[w.slot] = weir.Now().Add(detourFor)
	answering.CompareAndSwap(through, nil) // it may be what failed
}
