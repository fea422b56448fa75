package redisstore

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// A sender whose answers take long holds up no others: it may be its connection that is slow.
func TestLateSenders(t *testing.T) {
	s := &Store{timeout: 100 * time.Millisecond, max: 100}
	s.patrol = &patrol{store: s, work: make(chan struct{}, 1)}
	l := newLane(s)
	l.trips = make([]trip, 2)
	add := func() {
		r := newRequest()
		r.begin(weir.Now().Add(time.Hour))
		if err := l.add(r, false); err != nil {
			t.Fatal(err)
		}
	}
	add()
	sent := l.next(0, nil, 0)
	if len(sent) != 1 || l.worthGoing() {
		t.Fatalf("a sender went with %d requests", len(sent))
	}
	add()
	if l.expire(weir.Now()); l.worthGoing() {
		t.Error("a second sender goes at once; it should wait for the first, and for company")
	}
	if l.expire(weir.Now().Add(s.timeout / 4)); !l.worthGoing() {
		t.Fatal("the first sender is late, and the second waits for it")
	}
	second := l.next(1, nil, 0)
	if add(); l.worthGoing() {
		t.Error("while the second is away in time, nobody else should go")
	}
	l.trips[1].with, l.away = nil, l.away-1 // it came back
	if !l.worthGoing() {
		t.Error("the second waits for the first, which is late")
	}
	if again := l.next(0, sent, 1); len(second) != 1 || len(again) != 1 || l.away != 1 || l.trips[0].late {
		t.Errorf("after the first came back it went with %d requests; %d are away, late %t", len(again), l.away, l.trips[0].late)
	}
}
