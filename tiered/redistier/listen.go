package redistier

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir/tiered"
)

const (
	// retryEvery is how long it takes on average until a subscription that was lost is
	// tried again. It varies by a half, so that a fleet does not come all at once.
	retryEvery = 100 * time.Millisecond

	// maxQueued is how many words may wait for a listener.
	maxQueued = 1 << 16
)

// Listen has heard called with what other nodes publish from now on, by a goroutine of its
// own: see tiered.Bus. It is called with nil at first, and each time when a subscription
// that was lost has begun again. heard must call neither stop nor Close. After Close
// it is not called any more, and stop does nothing.
func (b *Bus) Listen(heard func(words []tiered.Message)) (stop func()) {
	l := &listener{heard: heard, counts: &b.counts, wake: make(chan struct{}, 1), end: make(chan struct{}), ended: make(chan struct{})}
	l.lose()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return func() {}
	}
	b.listeners[l] = struct{}{}
	go l.run()
	return func() {
		b.mu.Lock()
		delete(b.listeners, l)
		b.mu.Unlock()
		l.stop()
	}
}

// follow keeps the subscription until ctx ends. begun, which has room for one, gets nil
// when it has begun, or why it did not: then follow gives up.
func (b *Bus) follow(ctx context.Context, begun chan<- error) {
	for {
		err := b.subscribe(ctx, begun)
		if b.counts.subscriptions.Load() == 0 {
			begun <- err
			return
		}
		pause := time.NewTimer(retryEvery/2 + rand.N(retryEvery)) //nolint:gosec // it is no secret
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// subscribe listens until the connection is lost or ctx ends. The connection is that of
// heartbeats and Publish, and is closed if these get no answer; so it does not stay deaf for long.
func (b *Bus) subscribe(ctx context.Context, begun chan<- error) error {
	defer b.subscribed.Store(false)
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind == "subscribe" {
			b.begin(begun)
		}
	})
	cmd := b.conn.Client.B().Subscribe().Channel(b.config.channel()).Build().SetSlot(b.config.nodesKey())
	return b.conn.Client.Receive(ctx, cmd, func(m rueidis.PubSubMessage) { b.hear(m.Message) })
}

// begin notes that the server has confirmed a subscription. If it is not the first, words
// may have been lost, the server may be another one, with another clock, and what it
// knows of the nodes may be old.
func (b *Bus) begin(begun chan<- error) {
	b.subscribed.Store(true)
	if b.counts.subscriptions.Add(1) == 1 {
		begun <- nil
		return
	}
	b.clock.forget()
	b.shaken.Store(true)
	select {
	case b.again <- struct{}{}:
	default: // it is asked for already
	}
	b.each((*listener).lose)
}

// hear gives a message to the listeners. The goroutine is the one that reads replies, too.
func (b *Bus) hear(text string) {
	head, _, err := decodeHeader(text)
	if err == nil && head.from == b.id {
		return
	}
	m, err := decode(text)
	if err != nil {
		b.counts.damaged.Add(1)
		return
	}
	b.counts.heard.Add(int64(len(m.words)))
	b.translate(&m)
	if len(m.words) > 0 {
		b.each(func(l *listener) { l.add(m.words) })
	}
}

// translate turns a message's instants into this clock's. A message that was made later
// than now is by another clock than the one read here: then nobody knows when its
// denials end. If the clocks differ by less than it was on the way, that is not seen, and so
// denials are too late by that at most.
func (b *Bus) translate(m *message) {
	now := b.config.Now()
	made, known := b.clock.fromRedis(m.sent, now)
	if !known || made > now {
		b.counts.lost.Add(int64(m.dropDenials()))
		return
	}
	m.settle(made)
}

func (b *Bus) each(do func(*listener)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for l := range b.listeners {
		do(l)
	}
}

// listener calls one heard. Words wait in its queue, so that a heard that is slow holds
// up nobody else.
type listener struct {
	heard  func([]tiered.Message) // set by Listen, like everything up to ended
	counts *counts
	wake   chan struct{} // there is something to tell
	end    chan struct{} // closed by stop
	ended  chan struct{} // closed by run
	once   sync.Once     // of stop

	mu     sync.Mutex // guards the fields below
	lost   bool       // words may have been lost before those in queue
	queue  [][]tiered.Message
	queued int // words in queue
}

// add queues words. Those that are too many are lost, with all that wait: who has missed
// some has to start afresh.
func (l *listener) add(words []tiered.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queued+len(words) > maxQueued {
		l.counts.lost.Add(int64(l.queued))
		l.lost, l.queue, l.queued = true, nil, 0
	}
	l.queue = append(l.queue, words)
	l.queued += len(words)
	l.wakeUp()
}

// lose notes that words may have been lost. Those that wait came before, and are told
// no more: nil makes up for them.
func (l *listener) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.lost.Add(int64(l.queued))
	l.lost, l.queue, l.queued = true, nil, 0
	l.wakeUp()
}

func (l *listener) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default: // it is awake
	}
}

// run calls heard until stop.
func (l *listener) run() {
	defer close(l.ended)
	for {
		select {
		case <-l.wake:
		case <-l.end:
			return
		}
		lost, queue := l.take()
		if lost && !l.stopped() {
			l.heard(nil)
		}
		for _, words := range queue {
			if l.stopped() {
				return
			}
			l.heard(words)
		}
	}
}

func (l *listener) take() (lost bool, queue [][]tiered.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost, queue = l.lost, l.queue
	l.lost, l.queue, l.queued = false, nil, 0
	return lost, queue
}

func (l *listener) stopped() bool {
	select {
	case <-l.end:
		return true
	default:
		return false
	}
}

// stop returns when heard is not running and will not be called.
func (l *listener) stop() {
	l.once.Do(func() { close(l.end) })
	<-l.ended
}
