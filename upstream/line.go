package upstream

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Lines are where requests wait that no endpoint can take: first come, first served.
//
// Requests that can use different endpoints stand in different lines, so that one which waits for a certain endpoint
// does not hold up the others; and so do those of different classes and of different clients, so that who sends many
// holds up nobody else. The head of a line tries all its endpoints, sleeps until the first of them can take it, and
// tries again; all others sleep until they are the head. So it is exact however many wait, and no request overtakes
// another of its line.
//
// # Turns
//
// Lines take turns, in rounds. The next head of a line has the round after that of its predecessor, if that was sent. The
// head of a new line joins the round that is served. Heads are ordered by round and, within a round, by arrival. When
// several of them can try, they do so in that order: one whose time has come has its endpoints to itself until it has
// tried. For example, A and B have an endpoint for one request per second. A has three waiting when B comes with two:
//
//	round   1    2    3
//	A       a1   a2   a3
//	B       b1   b2         are sent as a1 b1 a2 b2 a3
//
// Lines of one request each are served in the order of arrival. A head that has tried in vain is not waited for: another
// class may have room in a budget where its class has none.
//
// # Plans
//
// A request joins only if it can expect to be sent before its deadline. Its turn is planned for that: on the endpoint
// that could take it first if all before it keep to their plans. Nobody is bound by a plan. A line that is shorter gets
// turns before the last ones of a longer line, also for requests that come later. So a request may be refused after it
// has waited, but none of a line that is as short as the others.
type lines struct {
	total atomic.Int64 // waiting requests; written with mu held

	// awaited is how many heads wait for a reservation to end. Who ends one looks at it afterwards, and they try
	// once more after they have increased it, so no end is missed.
	awaited atomic.Int64

	mu      sync.Mutex // guards the fields below
	joined  int64      // requests that have ever joined
	byKey   map[lineKey][]*waiter
	heads   []*waiter     // of all lines, in the order of their turns
	round   int64         // the latest of a request that was sent
	changed chan struct{} // closed and replaced when an endpoint may have got room
}

// A lineKey is what requests of a line have in common.
type lineKey struct {
	class     string
	client    string
	endpoints bits // those that can be used
}

// bits is a set of endpoints, by their index.
type bits [2]uint64

func (b *bits) add(i int)            { b[i/64] |= 1 << (i % 64) }
func (b *bits) addAll(other bits)    { b[0], b[1] = b[0]|other[0], b[1]|other[1] }
func (b bits) meets(other bits) bool { return b[0]&other[0]|b[1]&other[1] != 0 }

type waiter struct {
	number int64   // in the order of arrival
	plan   *memory // the endpoint for which it is planned
	keyIn  func(*set) lineKey
	head   chan struct{} // closed when it is the head of its line

	// The following is guarded by lines.mu.
	key   lineKey
	leads bool          // it is, or was, the head
	round int64         // as the head
	due   time.Time     // as the head: when it tries, the zero time if it does or is about to
	turn  chan struct{} // closed when it may try; nil if it does not wait for that
}

// inTurn compares the turns of two heads.
func inTurn(a, b *waiter) int {
	return cmp.Or(cmp.Compare(a.round, b.round), cmp.Compare(a.number, b.number))
}

func newLines() *lines {
	return &lines{byKey: map[lineKey][]*waiter{}, changed: make(chan struct{})}
}

func (l *lines) waiting() int { return int(l.total.Load()) }

// busy reports whether a call has to stand in line: behind others of its own, or because heads of others are to try its
// endpoints now.
func (l *lines) busy(s *set, c *Call, tried []*endpoint) bool {
	if l.waiting() == 0 {
		return false
	}
	key, soon := s.keyOf(c, tried), time.Now().Add(margin)
	l.mu.Lock()
	defer l.mu.Unlock()
	isDue := func(w *waiter) bool { return !w.due.After(soon) && w.key.endpoints.meets(key.endpoints) }
	return len(l.byKey[key]) > 0 || slices.ContainsFunc(l.heads, isDue)
}

// roundLocked returns the round of the head of a new line: the one that is served.
func (l *lines) roundLocked() int64 {
	for _, w := range l.heads { // those before l.round have waited longer, for endpoints of their own
		if w.round >= l.round {
			return w.round
		}
	}
	return l.round
}

// ahead returns by endpoint how many waiting requests are planned for it whose turn comes before that of the next one
// that joins a line.
func (l *lines) ahead(key lineKey) map[*memory]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	round := l.roundLocked()
	if line := l.byKey[key]; len(line) > 0 {
		round = line[0].round + int64(len(line))
	}
	n := map[*memory]int{}
	for _, line := range l.byKey {
		before := round - line[0].round + 1
		for _, w := range line[:max(0, min(before, int64(len(line))))] {
			n[w.plan]++
		}
	}
	return n
}

// ofClientLocked returns how many requests of a client wait.
func (l *lines) ofClientLocked(client string) (n int) {
	for k, line := range l.byKey {
		if k.client == client {
			n += len(line)
		}
	}
	return n
}

// join puts a request at the end of its line. It returns nil if too many wait, or too many of its client.
func (l *lines) join(s *sending, plan *memory, most int) *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting() >= most || s.call.Client != "" && l.ofClientLocked(s.call.Client) >= (most+1)/2 {
		return nil
	}
	l.joined++
	w := &waiter{number: l.joined, plan: plan, head: make(chan struct{}), keyIn: func(set *set) lineKey { return set.keyOf(s.call, s.tried) }}
	w.key = w.keyIn(s.pool.set.Load()) // with mu held, so that none is missed by rearrange
	l.byKey[w.key] = append(l.byKey[w.key], w)
	l.total.Add(1)
	l.leadLocked(l.byKey[w.key][0], l.roundLocked())
	return w
}

// leave takes a request out of its line. Sent is whether it got an endpoint.
func (l *lines) leave(w *waiter, sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total.Add(-1)
	next := w.round
	if sent {
		next++
		l.round = max(l.round, w.round)
	}
	l.heads = without(l.heads, w)
	if line := without(l.byKey[w.key], w); len(line) > 0 {
		l.byKey[w.key] = line
		l.leadLocked(line[0], max(next, l.round))
	} else {
		delete(l.byKey, w.key)
	}
	l.passLocked()
}

func without(list []*waiter, w *waiter) []*waiter {
	if at := slices.Index(list, w); at >= 0 {
		return slices.Delete(list, at, at+1)
	}
	return list
}

// leadLocked makes a request the head of its line, if it is not. A line that was put together of several may have more
// than one.
func (l *lines) leadLocked(w *waiter, round int64) {
	if w.leads {
		return
	}
	w.leads, w.round = true, round
	close(w.head)
	at, _ := slices.BinarySearchFunc(l.heads, w, inTurn)
	l.heads = slices.Insert(l.heads, at, w)
}

// margin is how much earlier than another a head can be due that waits for the same room: its time was computed from
// another instant, or by a store with another clock.
const margin = 5 * time.Millisecond

// await returns when a head may try: when no head before it is due that can use one of its endpoints. Afterwards it must call
// tried, or leave.
func (l *lines) await(ctx context.Context, w *waiter) error {
	turn := make(chan struct{})
	l.mu.Lock()
	w.due, w.turn = time.Time{}, turn
	l.passLocked()
	l.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tried notes that a head has tried in vain, and when it tries again.
func (l *lines) tried(w *waiter, again time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.due = again
	l.passLocked()
}

// passLocked gives the turn to the heads that wait for it and whose endpoints no head before them is to try.
func (l *lines) passLocked() {
	soon := time.Now().Add(margin)
	var taken bits
	for _, w := range l.heads {
		if w.due.After(soon) {
			continue
		}
		if w.turn != nil && !taken.meets(w.key.endpoints) {
			close(w.turn)
			w.turn = nil
		}
		taken.addAll(w.key.endpoints)
	}
}

// rearrange puts those who wait into the lines of a new set, in the order in which they came, and lets the heads try again.
func (l *lines) rearrange(next *set) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*waiter
	for _, line := range l.byKey {
		all = append(all, line...)
	}
	slices.SortFunc(all, func(a, b *waiter) int { return cmp.Compare(a.number, b.number) })
	clear(l.byKey)
	for _, w := range all {
		w.key = w.keyIn(next)
		l.byKey[w.key] = append(l.byKey[w.key], w)
	}
	for _, line := range l.byKey {
		l.leadLocked(line[0], l.roundLocked())
	}
	l.wakeLocked()
}

// wake lets the heads of all lines try again.
func (l *lines) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakeLocked()
}

func (l *lines) wakeLocked() {
	if l.waiting() > 0 {
		for _, w := range l.heads {
			w.due = time.Time{}
		}
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// change returns a channel that is closed at the next wake.
func (l *lines) change() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}
