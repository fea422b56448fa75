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
	// retryEvery is the average delay before a lost subscription is retried. It varies
	// by a half, so that the nodes of a fleet do not reconnect all at once.
	retryEvery = 100 * time.Millisecond

	// maxQueued bounds the messages that wait for a listener.
	maxQueued = 1 << 16
)

// Listen has receive called with the messages that other nodes publish from now on, from a
// goroutine of its own: see tiered.Bus. It is called with nil first, and whenever a lost
// subscription has begun again. receive must call neither stop nor Close. After Close it is
// not called, and stop does nothing.
func (b *Bus) Listen(receive func(messages []tiered.Message)) (stop func()) {
	l := &listener{receive: receive, counts: &b.counts, wake: make(chan struct{}, 1), end: make(chan struct{}), ended: make(chan struct{})}
	l.markLost()
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

// follow keeps the subscription alive until ctx ends. It sends nil to begun, which has room
// for one, when the first subscription has begun, or the error if it failed, and returns then.
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

// subscribe receives payloads until the connection is lost or ctx ends. Heartbeats and Publish
// use the same connection and close it if they get no reply, so a dead connection is
// detected soon.
func (b *Bus) subscribe(ctx context.Context, begun chan<- error) error {
	defer b.subscribed.Store(false)
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind == "subscribe" {
			b.begin(begun)
		}
	})
	cmd := b.conn.Client.B().Subscribe().Channel(b.config.channel()).Build().SetSlot(b.config.nodesKey())
	return b.conn.Client.Receive(ctx, cmd, func(m rueidis.PubSubMessage) { b.deliver(m.Message) })
}

// begin records that the server has confirmed a subscription. If it is not the first,
// messages may have been lost, and the server may be another one with another clock and an
// outdated set of nodes.
func (b *Bus) begin(begun chan<- error) {
	b.subscribed.Store(true)
	if b.counts.subscriptions.Add(1) == 1 {
		begun <- nil
		return
	}
	b.clock.forget()
	b.uncertain.Store(true)
	select {
	case b.beatNow <- struct{}{}:
	default: // one is requested already
	}
	b.each((*listener).markLost)
}

// deliver decodes a payload and queues its messages for all listeners. It runs on the
// goroutine that reads replies, so it must not block.
func (b *Bus) deliver(text string) {
	head, _, err := decodeHeader(text)
	if err == nil && head.from == b.id {
		return
	}
	p, err := decode(text)
	if err != nil {
		b.counts.damaged.Add(1)
		return
	}
	b.counts.received.Add(int64(len(p.messages)))
	b.translate(&p)
	if len(p.messages) > 0 {
		b.each(func(l *listener) { l.add(p.messages) })
	}
}

// translate converts the instants of a payload to this node's clock. A payload that appears
// to come from the future was made by another Redis clock than the one read here, so the end
// of its denials is unknown and they are dropped. A clock difference that is less than the
// payload's time in flight is not detected; denials then end too late by that time at most.
func (b *Bus) translate(p *payload) {
	now := b.config.Now()
	made, known := b.clock.fromRedis(p.sent, now)
	if !known || made > now {
		b.counts.lost.Add(int64(p.dropDenials()))
		return
	}
	p.localize(made)
}

func (b *Bus) each(do func(*listener)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for l := range b.listeners {
		do(l)
	}
}

// A listener calls one receive function. Messages wait in its queue, so that a slow receive
// delays no other listener.
type listener struct {
	receive func([]tiered.Message) // set by Listen, like everything up to ended
	counts  *counts
	wake    chan struct{} // there is something to deliver
	end     chan struct{} // closed by stop
	ended   chan struct{} // closed by run
	once    sync.Once     // of stop

	mu     sync.Mutex // guards the fields below
	lost   bool       // messages may have been lost before those in queue
	queue  [][]tiered.Message
	queued int // messages in queue
}

// add queues messages. If the queue is full, all queued messages are dropped and receive
// gets nil instead: a listener that has missed some must drop its cached state in any case.
func (l *listener) add(messages []tiered.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queued+len(messages) > maxQueued {
		l.counts.lost.Add(int64(l.queued))
		l.lost, l.queue, l.queued = true, nil, 0
	}
	l.queue = append(l.queue, messages)
	l.queued += len(messages)
	l.wakeUp()
}

// markLost has receive called with nil, because messages may have been lost. Queued messages
// are older and are dropped: nil supersedes them.
func (l *listener) markLost() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.lost.Add(int64(l.queued))
	l.lost, l.queue, l.queued = true, nil, 0
	l.wakeUp()
}

func (l *listener) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default: // it is running already
	}
}

// run calls receive until stop.
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
			l.receive(nil)
		}
		for _, messages := range queue {
			if l.stopped() {
				return
			}
			l.receive(messages)
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

// stop returns once receive is not running and will not be called again.
func (l *listener) stop() {
	l.once.Do(func() { close(l.end) })
	<-l.ended
}
