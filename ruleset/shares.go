package ruleset

import (
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/compiled"
)

// The maximum number of requests that wait, and of open reservations. A client may have a
// clientShare-th part of them, unless it is the only one, so that no client can use them up for the
// others.
const (
	maxWaiting  = 10_000
	maxReserved = 100_000
	clientShare = 4
)

// shareOfLine returns how many of the requests that may wait in a line are one client's at most, unless it is alone: so a line
// that several share, such as that of a budget, has room for the others.
func shareOfLine(most int) int { return max(1, most-most/clientShare) }

// shares counts something of which there is a bounded number, in all and for each key.
type shares struct {
	most, each int // set once

	mu    sync.Mutex // guards the fields below
	all   int
	byKey map[string]int
}

// add counts one more of a key, or returns false if there are too many. A key that is alone may
// have all.
func (s *shares) add(key string, alone bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addLocked(key, alone)
}

func (s *shares) addLocked(key string, alone bool) bool {
	if s.all >= s.most || !alone && s.byKey[key] >= s.each {
		return false
	}
	if s.byKey == nil {
		s.byKey = map[string]int{}
	}
	s.all++
	s.byKey[key]++
	return true
}

// remove counts one less.
func (s *shares) remove(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(key)
}

func (s *shares) removeLocked(key string) {
	s.all--
	if s.byKey[key]--; s.byKey[key] == 0 {
		delete(s.byKey, key)
	}
}

func (s *shares) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// openTickets counts the open reservations of clients that are not alone. A ticket counts until it
// is settled on this node, or expires: one that is settled on another node counts until its expiry.
type openTickets struct {
	shares

	// Guarded by shares.mu.
	byID  map[[16]byte]openTicket
	swept time.Time // when expired tickets were last removed
}

type openTicket struct {
	client string
	until  time.Time
}

// sweepEvery is how often expired tickets are looked for, while a client has used its share.
const sweepEvery = time.Second

// hold counts a ticket, or returns false if its client has too many.
func (t *openTickets) hold(q *Query, id [16]byte, ttl time.Duration) bool {
	if q.Alone {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if !t.addLocked(q.Client, false) && !(t.sweepLocked(now) && t.addLocked(q.Client, false)) {
		return false
	}
	if t.byID == nil {
		t.byID = map[[16]byte]openTicket{}
	}
	t.byID[id] = openTicket{q.Client, now.Add(q.MaxWait + orDefault(ttl))}
	return true
}

// sweepLocked removes expired tickets. It returns false if it was done just before.
func (t *openTickets) sweepLocked(now time.Time) bool {
	if now.Sub(t.swept) < sweepEvery {
		return false
	}
	t.swept = now
	for id, one := range t.byID {
		if !now.Before(one.until) {
			t.releaseLocked(id)
		}
	}
	return true
}

// release counts a ticket no more, if it was counted.
func (t *openTickets) release(id [16]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.releaseLocked(id)
}

func (t *openTickets) releaseLocked(id [16]byte) {
	if one, ok := t.byID[id]; ok {
		delete(t.byID, id)
		t.removeLocked(one.client)
	}
}

// renew moves the expiry of a ticket, if it is counted.
func (t *openTickets) renew(id [16]byte, ttl time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one, ok := t.byID[id]; ok {
		one.until = time.Now().Add(orDefault(ttl))
		t.byID[id] = one
	}
}

func orDefault(ttl time.Duration) time.Duration {
	if ttl == 0 {
		return compiled.DefaultTTL
	}
	return ttl
}
