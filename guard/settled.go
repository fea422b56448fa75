package guard

import (
	"hash/maphash"
	"sync"

	"github.com/weirlimit/weir"
)

// settled remembers how tickets were settled, so that who did not get the answer can ask
// again. It remembers the last ones, in a ring.
type settled struct {
	seed  maphash.Seed   // set by newSettled
	locks [64]sync.Mutex // one of them is held while a ticket is settled

	mu   sync.Mutex // guards the fields below
	how  map[[16]byte]weir.Settled
	ring [][16]byte
	next int // the oldest of a full ring
}

// rememberSettled is how many settled tickets are remembered: about 2 MB.
const rememberSettled = 1 << 15

func newSettled() *settled {
	return &settled{seed: maphash.MakeSeed(), how: map[[16]byte]weir.Settled{}}
}

// once settles a ticket unless that was done.
func (s *settled) once(id [16]byte, settle func() (weir.Settled, error)) (weir.Settled, error) {
	lock := &s.locks[maphash.Comparable(s.seed, id)%uint64(len(s.locks))]
	lock.Lock()
	defer lock.Unlock()
	if out, ok := s.find(id); ok {
		return out, nil
	}
	out, err := settle()
	if err == nil {
		s.keep(id, out)
	}
	return out, err
}

func (s *settled) find(id [16]byte) (weir.Settled, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, ok := s.how[id]
	return out, ok
}

func (s *settled) keep(id [16]byte, out weir.Settled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ring) < rememberSettled {
		s.ring = append(s.ring, id)
	} else {
		delete(s.how, s.ring[s.next])
		s.ring[s.next] = id
		s.next = (s.next + 1) % rememberSettled
	}
	s.how[id] = out
}
