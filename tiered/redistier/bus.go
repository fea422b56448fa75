package redistier

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir/internal/redisconn"
	"github.com/weirlimit/weir/tiered"
)

var (
	// ErrClosed is returned by Publish after Close.
	ErrClosed = errors.New("redistier: closed")

	// ErrUnavailable is returned by Publish, without waiting, while there is no
	// connection. The messages are lost.
	ErrUnavailable = errors.New("redistier: no connection to Redis")

	// ErrBusy is returned by Publish, without waiting, while 256 other calls are waiting
	// for the server. The messages are lost.
	ErrBusy = errors.New("redistier: too many calls of Publish in flight")

	// ErrNoClock is returned by Publish if denials were lost because no heartbeat has
	// read Redis's clock yet. The other messages were sent.
	ErrNoClock = errors.New("redistier: denials not published: Redis's clock has not been read yet")
)

const (
	// publishTimeout bounds Publish for callers without a deadline.
	publishTimeout = time.Second

	// maxPublishing bounds the calls of Publish in flight. A connection queues 1,024
	// commands; beyond that the client would block without honouring the context.
	maxPublishing = 256
)

// Bus is a tiered.Bus over Redis. Make one with New. Its methods may be called by any
// number of goroutines.
type Bus struct {
	config Config // set by New, like everything up to beating
	id     nodeID
	conn   *redisconn.Conn
	end    context.CancelFunc // ends follow
	still  context.CancelFunc // ends beat

	following, beating sync.WaitGroup // of the goroutines

	clock       clock
	nodes       atomic.Int64
	risingUntil time.Time     // until then the node count may only rise; used by heartbeat alone
	uncertain   atomic.Bool   // a heartbeat or the subscription has failed since the last count
	beatNow     chan struct{} // requests a heartbeat now
	subscribed  atomic.Bool   // there is a connection; written by follow
	publishing  atomic.Int64  // calls of Publish that wait for the server
	counts      counts
	closing     sync.Once

	mu        sync.Mutex // guards the fields below
	closed    bool
	listeners map[*listener]struct{}
}

var _ tiered.Bus = (*Bus)(nil)

// New connects to Redis, subscribes and sends the first heartbeat, so that Nodes is known.
// The context bounds that, and nothing later.
func New(ctx context.Context, c Config) (*Bus, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	conn, err := redisconn.Open(ctx, redisconn.Config(c.Redis))
	if err != nil {
		return nil, err
	}
	b := &Bus{config: c, conn: conn, beatNow: make(chan struct{}, 1), listeners: map[*listener]struct{}{}}
	_, _ = rand.Read(b.id[:]) // it never fails
	if err := b.start(ctx); err != nil {
		b.stop()
		conn.Close()
		return nil, err
	}
	return b, nil
}

// start begins what stop ends.
func (b *Bus) start(ctx context.Context) error {
	follow, end := context.WithCancel(context.Background())
	beat, still := context.WithCancel(context.Background())
	b.end, b.still = end, still
	begun := make(chan error, 1)
	b.following.Go(func() { b.follow(follow, begun) })
	select {
	case err := <-begun:
		if err != nil {
			return fmt.Errorf("redistier: subscribe to %q: %w", b.config.channel(), err)
		}
	case <-ctx.Done():
		return fmt.Errorf("redistier: subscribe to %q: %w", b.config.channel(), context.Cause(ctx))
	}
	if err := b.heartbeat(ctx); err != nil {
		return err
	}
	b.beating.Go(func() { b.beat(beat) })
	return nil
}

func (b *Bus) stop() {
	b.still()
	b.end()
	b.beating.Wait()
	b.following.Wait()
}

// Close ends the heartbeats and all listeners, removes this node from the set of nodes, and
// closes the connection. It takes about a second if the server does not answer. The receive
// function of Listen must not call it.
func (b *Bus) Close() {
	b.closing.Do(func() {
		for _, l := range b.shut() {
			l.stop()
		}
		connected := b.subscribed.Load()
		b.stop()
		if connected {
			b.leave()
		}
		b.conn.Close()
	})
}

// shut marks the bus as closed, and returns its listeners.
func (b *Bus) shut() (all []*listener) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for l := range b.listeners {
		all = append(all, l)
	}
	return all
}

// Nodes returns the number of live nodes, this one included, as of the last heartbeat that
// was answered.
func (b *Bus) Nodes() int { return int(b.nodes.Load()) }

// Publish sends messages to all other nodes. It returns when ctx ends, and after a second at
// most. An error means that some or all messages were lost, or may have been.
func (b *Bus) Publish(ctx context.Context, messages []tiered.Message) error {
	if len(messages) == 0 {
		return nil
	}
	payloads, counts, encoding := b.encode(messages)
	var sent int64
	err := b.send(ctx, payloads, func(i int) { sent += counts[i] })
	b.counts.published.Add(sent)
	b.counts.lost.Add(int64(len(messages)) - sent)
	return errors.Join(err, encoding)
}

// encode returns payloads and the number of messages in each. err says why a message could
// not be encoded.
func (b *Bus) encode(messages []tiered.Message) (payloads []string, counts []int64, err error) {
	now := b.config.Now()
	sent, known := b.clock.toRedis(now)
	if !known {
		sent = 0
	}
	buf, count := appendHeader(nil, b.id, sent), int64(0)
	finish := func() {
		if count > 0 {
			payloads, counts = append(payloads, string(buf)), append(counts, count)
		}
		buf, count = buf[:headerBytes], 0
	}
	for i := range messages {
		m := &messages[i]
		problem := checkMessage(m)
		if problem == nil && m.Kind == tiered.KeyDenied && !known {
			problem = ErrNoClock
		}
		if problem != nil {
			err = problem // reporting the last one suffices
			continue
		}
		if len(buf)+maxMessageBytes > maxPayloadBytes {
			finish()
		}
		buf, count = appendMessage(buf, m, now), count+1
	}
	finish()
	return payloads, counts, err
}

// send publishes payloads, and calls sent with the index of each that the server accepted.
// In a Cluster they go to the node that holds the set of nodes, where this Bus, like most
// others, is subscribed.
func (b *Bus) send(ctx context.Context, payloads []string, sent func(i int)) error {
	if len(payloads) == 0 {
		return nil
	}
	if b.isClosed() {
		return ErrClosed
	}
	if !b.subscribed.Load() {
		return ErrUnavailable
	}
	defer b.publishing.Add(-1)
	if b.publishing.Add(1) > maxPublishing {
		return ErrBusy
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	var problem error
	for i, r := range b.conn.Client.DoMulti(ctx, b.publishCommands(payloads)...) {
		if err := r.Error(); err != nil {
			problem = fmt.Errorf("redistier: publish: %w", err)
			continue
		}
		sent(i)
	}
	return problem
}

func (b *Bus) publishCommands(payloads []string) (all []rueidis.Completed) {
	for _, p := range payloads {
		all = append(all, b.conn.Client.B().Publish().Channel(b.config.channel()).Message(p).Build().SetSlot(b.config.nodesKey()))
	}
	return all
}

func (b *Bus) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}
