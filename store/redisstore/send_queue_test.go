package redisstore

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// A sender whose replies take long does not block other senders: its connection may be slow.
func TestLateSenders(t *testing.T) {
	s := &Store{timeout: 100 * time.Millisecond, max: 100}
	s.sweeper = &timeoutSweeper{store: s, work: make(chan struct{}, 1)}
	q := newSendQueue(s)
	q.inFlight = make([]inFlightBatch, 2)
	add := func() {
		r := newRequest()
		r.begin(weir.Now().Add(time.Hour))
		if err := q.add(r, false); err != nil {
			t.Fatal(err)
		}
	}
	add()
	sent := q.next(0, nil, 0)
	if len(sent) != 1 || q.shouldSend() {
		t.Fatalf("a sender went with %d requests", len(sent))
	}
	add()
	if q.expire(weir.Now()); q.shouldSend() {
		t.Error("a second sender sends at once; it should wait for the first, or for more requests")
	}
	if q.expire(weir.Now().Add(s.timeout / 4)); !q.shouldSend() {
		t.Fatal("the first sender is late, and the second waits for it")
	}
	second := q.next(1, nil, 0)
	if add(); q.shouldSend() {
		t.Error("while the second sender's batch is in flight and not late, no other should send")
	}
	q.inFlight[1].requests, q.busy = nil, q.busy-1 // its reply arrived
	if !q.shouldSend() {
		t.Error("the second waits for the first, which is late")
	}
	if again := q.next(0, sent, 1); len(second) != 1 || len(again) != 1 || q.busy != 1 || q.inFlight[0].late {
		t.Errorf("after its reply the first sender took %d requests; %d senders are busy, late %t", len(again), q.busy, q.inFlight[0].late)
	}
}
