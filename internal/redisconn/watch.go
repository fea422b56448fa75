package redisconn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

const (
	// topologyEvery is how often a watch looks for new masters.
	topologyEvery = time.Second

	// watchPings is how many times [Config.Timeout] passes between two pings of a watch. It finds
	// a connection that died silently that much later, and wakes an idle process that much less.
	watchPings = 3

	// retryEvery is how long a watch waits before it connects again.
	retryEvery = 100 * time.Millisecond
)

// Watch calls changed when a key that begins with prefix was changed by any client, including
// this process, or has expired or was evicted. The keys are those that were changed.
// nil means that any key may have been: when the watch of a server begins, when its
// connection is lost, and after FLUSHALL and FLUSHDB. A caller with a cache drops the
// entries of the keys, or all entries at nil.
//
// Every change is reported eventually, by its key or by nil, once the servers can be
// reached again. But it is only a hint, because it may be late: by the latency of the
// network; by up to seven times [Config.Timeout] if a connection dies silently; and for
// as long as a server cannot be reached, plus some seconds to find its successor. A
// change may be reported twice, and together with others; those of other databases are
// reported, too.
//
// It takes one connection to the server or, in a Cluster, to each master, on which Redis
// sends what it calls invalidations (CLIENT TRACKING ON BCAST). Each change of such a key
// costs the server some work for each watch, so the prefix should not be that of keys
// that change all the time.
//
// Watch returns when all connections are established, or an error if that fails or ctx ends.
// From then on the watch reconnects by itself. changed is called by one goroutine at a
// time and perhaps before Watch returns. It must be quick, and call neither stop nor Close.
// stop ends the watch: when it returns, changed is not running and will not be called, and
// the goroutines of the watch have ended. Close does the same.
func (c *Conn) Watch(ctx context.Context, prefix string, changed func(keys []string)) (stop func(), err error) {
	masters, err := c.masters(ctx)
	if err != nil {
		return nil, fmt.Errorf("redisconn: watch %q: %w", prefix, err)
	}
	w := &watch{conn: c, prefix: prefix, changed: changed, followed: map[string]context.CancelFunc{}}
	w.ctx, w.end = context.WithCancel(c.watches)
	if err := w.begin(ctx, masters); err != nil {
		w.stop()
		return nil, err
	}
	w.conn.wg.Add(1)
	w.wg.Go(func() {
		defer w.conn.wg.Done()
		w.run()
	})
	return w.stop, nil
}

// watch follows all masters. Its goroutines are one for each of them, and run.
type watch struct {
	conn   *Conn // set by Watch, like the next three
	prefix string
	ctx    context.Context // of the goroutines
	end    context.CancelFunc

	wg       sync.WaitGroup                // of run
	nodes    sync.WaitGroup                // of those that follow a master
	followed map[string]context.CancelFunc // by address; Watch's, then run's

	mu      sync.Mutex // guards the fields below, and is held during changed
	stopped bool
	changed func(keys []string)
}

// begin follows the first masters and waits until each has been tried.
func (w *watch) begin(ctx context.Context, masters []string) error {
	tried := make(chan error, len(masters))
	for _, addr := range masters {
		w.follow(addr, tried)
	}
	var problems []error
	for range masters {
		select {
		case err := <-tried:
			problems = append(problems, err)
		case <-ctx.Done():
			return fmt.Errorf("redisconn: watch %q: gave up: %w", w.prefix, context.Cause(ctx))
		}
	}
	return errors.Join(problems...)
}

// run follows the masters as they change, and waits for the end.
func (w *watch) run() {
	defer w.nodes.Wait()
	defer w.silence()         // a goroutine of rueidis may be calling
	var look <-chan time.Time // stays nil for a server alone, which is the master for good
	if w.conn.Cluster || w.conn.config.Sentinel != "" {
		tick := time.NewTicker(topologyEvery)
		defer tick.Stop()
		look = tick.C
	}
	for {
		select {
		case <-look:
			w.update()
		case <-w.ctx.Done():
			return
		}
	}
}

// update follows new masters, and stops following old ones. If the masters cannot be
// determined, it changes nothing.
func (w *watch) update() {
	masters, err := w.conn.masters(w.ctx)
	if err != nil {
		return
	}
	now := map[string]bool{}
	for _, addr := range masters {
		now[addr] = true
		if w.followed[addr] == nil {
			w.follow(addr, nil)
		}
	}
	for addr, cancel := range w.followed {
		if !now[addr] {
			cancel()
			delete(w.followed, addr)
		}
	}
}

// follow starts to follow a master. tried, unless it is nil, gets the result of the first
// attempt.
func (w *watch) follow(addr string, tried chan<- error) {
	ctx, cancel := context.WithCancel(w.ctx)
	w.followed[addr] = cancel
	w.nodes.Go(func() {
		defer cancel()
		err := w.track(ctx, addr, tried)
		if tried != nil && err != nil {
			tried <- err
		}
		for pause(ctx, retryEvery) {
			_ = w.track(ctx, addr, nil) // it is tried again
		}
	})
}

// track follows a master until the connection is lost or ctx ends. It returns an error if it
// could not begin; tried gets nil if it could.
func (w *watch) track(ctx context.Context, addr string, tried chan<- error) error {
	lost := make(chan struct{})
	d := &dialer{ctx: ctx, closed: sync.OnceFunc(func() { close(lost) })}
	client, err := rueidis.NewClient(w.options(d, addr))
	if client != nil {
		defer client.Close()
	}
	if err != nil {
		return w.conn.config.wrap(ctx, fmt.Sprintf("%s: watch %q", addr, w.prefix), err)
	}
	w.notify(nil) // earlier changes were not reported
	if tried != nil {
		tried <- nil
	}
	select {
	case <-lost: // rueidis calls OnInvalidations(nil)
	case <-ctx.Done():
	}
	return nil
}

// options returns the settings of a client that only listens. rueidis turns tracking on when
// it connects, which NewClient does.
func (w *watch) options(d *dialer, addr string) rueidis.ClientOption {
	o := w.conn.config.oneOptions(d, addr)
	o.Dialer.KeepAlive = watchPings * w.conn.config.Timeout // between rueidis's pings; nothing else is written
	d.most = 0                                              // for these have a time-out of their own
	o.SelectDB = 0                                          // tracking does not look at it
	o.DisableCache = false                                  // means tracking
	o.ClientTrackingOptions = []string{"BCAST", "PREFIX", w.prefix}
	o.OnInvalidations = func(messages []rueidis.RedisMessage) { w.notify(keysOf(messages)) }
	return o
}

// keysOf returns nil for nil.
func keysOf(messages []rueidis.RedisMessage) (keys []string) {
	for _, m := range messages {
		key, err := m.ToString()
		if err != nil {
			return nil
		}
		keys = append(keys, key)
	}
	return keys
}

// notify calls changed, unless the watch is ending: Close ends only its context.
func (w *watch) notify(keys []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped && w.ctx.Err() == nil {
		w.changed(keys)
	}
}

// silence makes sure that changed is not running and not called any more. rueidis calls
// OnInvalidations when a client is closed, and in its own time.
func (w *watch) silence() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
}

func (w *watch) stop() {
	w.silence()
	w.end()
	w.wg.Wait()
	w.nodes.Wait()
}

// pause returns false if ctx ends before d is over.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
