package guard

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// inFlight counts requests that are being handled: all of them, and those of each address and subject.
// Its size is that of the requests in flight. Keys are identified by a seeded hash of 64 bits.
//
// Addresses and subjects are counted apart, because an address is the subject of callers that are not
// authenticated: its requests must not count twice, nor with those of others at that address.
type inFlight struct {
	all   atomic.Int64
	seed  maphash.Seed
	keyed [2][16]inFlightShard // of addresses, and of subjects
}

// What is counted by key.
const (
	byAddress = 0
	bySubject = 1
)

type inFlightShard struct {
	mu    sync.Mutex // guards count
	count map[uint64]int64
}

func (f *inFlight) init() {
	f.seed = maphash.MakeSeed()
	for which := range f.keyed {
		for i := range f.keyed[which] {
			f.keyed[which][i].count = map[uint64]int64{}
		}
	}
}

// enter counts a request unless that makes more than most, if that is not 0.
func (f *inFlight) enter(most int64) bool {
	if n := f.all.Add(1); most == 0 || n <= most {
		return true
	}
	f.all.Add(-1)
	return false
}

func (f *inFlight) leave() { f.all.Add(-1) }

// shard returns where a key is counted.
func (f *inFlight) shard(which int, h uint64) *inFlightShard {
	return &f.keyed[which][h%uint64(len(f.keyed[which]))]
}

// enterKey counts a request of a key unless that makes more than most. It returns what leaveKey needs.
func (f *inFlight) enterKey(which int, key string, most int64) (hash uint64, ok bool) {
	h := maphash.String(f.seed, key)
	s := f.shard(which, h)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count[h] >= most {
		return h, false
	}
	s.count[h]++
	return h, true
}

func (f *inFlight) leaveKey(which int, h uint64) {
	s := f.shard(which, h)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count[h]--; s.count[h] <= 0 {
		delete(s.count, h)
	}
}
