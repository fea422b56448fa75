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

	// ErrAway is returned by Publish, at once, while there is no connection. The
	// words are lost.
	ErrAway = errors.New("redistier: no connection to Redis")

	// ErrBusy is returned by Publish, at once, while 256 others are waiting for the
	// server. The words are lost.
	ErrBusy = errors.New("redistier: too many words are under way")

	// ErrNoClock is returned by Publish if denials were lost because it is not known
	// yet what time it is by Redis's clock. The other words were sent.
	ErrNoClock = errors.New("redistier: Redis's clock was not read yet")
)

const (
	// publishTimeout bounds Publish for callers who do not.
	publishTimeout = time.Second

	// maxPublishing is how many calls of Publish may wait. A connection holds 1,024
	// commands, and the one too many waits without looking at its context.
	maxPublishing = 256
)

// Bus is a tiered.Bus over Redis. Make one with New. Its methods may be called by any
// number of goroutines.
type Bus struct {
	config Config // set by New, like everything up to beating
	id     nodeID
	conn   *redisconn.Conn
	end    context.CancelFunc // of follow
	still  context.CancelFunc // of beat

	following, beating sync.WaitGroup // of the goroutines

	clock      clock
	nodes      atomic.Int64
	settled    time.Time     // heartbeat's: before that, nodes may rise only
	shaken     atomic.Bool   // a heartbeat or the subscription has failed since the last count
	again      chan struct{} // asks for a heartbeat now
	subscribed atomic.Bool   // set and taken back by follow: there is a connection
	publishing atomic.Int64  // calls of Publish that wait for the server
	counts     counts
	closing    sync.Once

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
	b := &Bus{config: c, conn: conn, again: make(chan struct{}, 1), listeners: map[*listener]struct{}{}}
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
		return fmt.Errorf("redistier: subscribe to %q: gave up: %w", b.config.channel(), context.Cause(ctx))
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

// Close ends the heartbeats and all listeners, has the other nodes count one less, and
// closes the connection. It takes a second or so if the server does not answer. heard of
// Listen must not call it.
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

// shut lets in no more listeners, and returns those there are.
func (b *Bus) shut() (all []*listener) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for l := range b.listeners {
		all = append(all, l)
	}
	return all
}

// Nodes returns how many nodes are alive, this one included, as of the last heartbeat
// that was answered.
func (b *Bus) Nodes() int { return int(b.nodes.Load()) }

// Publish tells all other nodes. It ends with ctx, and after a second at most. An error
// means that some words or all of them were lost, or may have been.
func (b *Bus) Publish(ctx context.Context, words []tiered.Message) error {
	if len(words) == 0 {
		return nil
	}
	messages, counts, encoding := b.encode(words)
	var sent int64
	err := b.send(ctx, messages, func(i int) { sent += counts[i] })
	b.counts.published.Add(sent)
	b.counts.lost.Add(int64(len(words)) - sent)
	return errors.Join(err, encoding)
}

// encode returns messages with how many words are in each, and why some are in none.
func (b *Bus) encode(words []tiered.Message) (messages []string, counts []int64, err error) {
	now := b.config.Now()
	sent, known := b.clock.toRedis(now)
	if !known {
		sent = 0
	}
	buf, count := appendHeader(nil, b.id, sent), int64(0)
	finish := func() {
		if count > 0 {
			messages, counts = append(messages, string(buf)), append(counts, count)
		}
		buf, count = buf[:headerBytes], 0
	}
	for i := range words {
		w := &words[i]
		problem := checkWord(w)
		if problem == nil && w.Kind == tiered.KeyDenied && !known {
			problem = ErrNoClock
		}
		if problem != nil {
			err = problem // the last of them will do
			continue
		}
		if len(buf)+maxWordBytes > maxMessageBytes {
			finish()
		}
		buf, count = appendWord(buf, w, now), count+1
	}
	finish()
	return messages, counts, err
}

// send publishes messages and calls sent with the places of those that the server has
// taken. They go to the node with the set of nodes, where this one has subscribed, as
// most others have.
func (b *Bus) send(ctx context.Context, messages []string, sent func(i int)) error {
	if len(messages) == 0 {
		return nil
	}
	if b.isClosed() {
		return ErrClosed
	}
	if !b.subscribed.Load() {
		return ErrAway
	}
	defer b.publishing.Add(-1)
	if b.publishing.Add(1) > maxPublishing {
		return ErrBusy
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	var problem error
	for i, r := range b.conn.Client.DoMulti(ctx, b.publishCommands(messages)...) {
		if err := r.Error(); err != nil {
			problem = fmt.Errorf("redistier: publish: %w", err)
			continue
		}
		sent(i)
	}
	return problem
}

func (b *Bus) publishCommands(messages []string) (all []rueidis.Completed) {
	for _, m := range messages {
		all = append(all, b.conn.Client.B().Publish().Channel(b.config.channel()).Message(m).Build().SetSlot(b.config.nodesKey()))
	}
	return all
}

func (b *Bus) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}
