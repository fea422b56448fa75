package guard

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// inFlight counts requests that are being handled: all of them, and those of each subject and address.
// Its size is that of the requests in flight. Keys are told apart by a seeded hash of 64 bits.
type inFlight struct {
	all    atomic.Int64
	seeds  [2]maphash.Seed // of addresses and of subjects: an address may be a subject as well
	shards [16]inFlightShard
}

type inFlightShard struct {
	mu    sync.Mutex // guards count
	count map[uint64]int64
}

func (f *inFlight) init() {
	f.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	for i := range f.shards {
		f.shards[i].count = map[uint64]int64{}
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

// enterKey counts a request of an address (0) or a subject (1) unless that makes more than most. It
// returns what leaveKey needs.
func (f *inFlight) enterKey(which int, key string, most int64) (hash uint64, ok bool) {
	h := maphash.String(f.seeds[which], key)
	s := &f.shards[h%uint64(len(f.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count[h] >= most {
		return h, false
	}
	s.count[h]++
	return h, true
}

func (f *inFlight) leaveKey(h uint64) {
	s := &f.shards[h%uint64(len(f.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count[h]--; s.count[h] <= 0 {
		delete(s.count, h)
	}
}
