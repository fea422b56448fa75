package ruleset

import (
	"encoding/binary"
	"sync"

	"github.com/weirlimit/weir"
)

// settled caches the results of settled tickets, so that a caller that did not receive the result
// can settle again. It has room for 32,768 tickets, in sets of eight: a ticket's random id selects
// the set, in which it replaces the oldest ticket. So the cache has a fixed size of 1.3 MB without
// pointers, and holds approximately the last tickets.
type settled struct {
	locks [64]sync.Mutex // one of them is held while a ticket is settled

	mu   sync.Mutex // guards the field below
	sets []settledSet
}

type settledSet struct {
	how  [8]settledTicket
	next uint8 // the index of the oldest
}

type settledTicket struct {
	id  [16]byte // zero if there is none
	how weir.Settled
}

// settledSets is the number of sets, a power of two.
const settledSets = 1 << 12

// once settles a ticket, or returns the cached result.
func (s *settled) once(id [16]byte, settle func() (weir.Settled, error)) (weir.Settled, error) {
	lock := &s.locks[id[15]%uint8(len(s.locks))]
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
	if s.sets == nil {
		return weir.Settled{}, false
	}
	for _, t := range s.setLocked(id).how {
		if t.id == id {
			return t.how, id != [16]byte{}
		}
	}
	return weir.Settled{}, false
}

func (s *settled) keep(id [16]byte, out weir.Settled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sets == nil { // allocated on first use: most programs reserve nothing
		s.sets = make([]settledSet, settledSets)
	}
	set := s.setLocked(id)
	set.how[set.next] = settledTicket{id, out}
	set.next = (set.next + 1) % uint8(len(set.how))
}

func (s *settled) setLocked(id [16]byte) *settledSet {
	return &s.sets[binary.LittleEndian.Uint64(id[:])%settledSets]
}
