package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redisconn"
	"github.com/weirlimit/weir/internal/storeapi"
)

// Config configures a Store.
type Config struct {
	// Redis is the server. It is the only field that must be set.
	Redis Server

	// Prefix is the prefix of all keys in Redis. Stores with the same prefix share
	// their limits. The default is "weir:". It must not contain braces.
	Prefix string

	// Timeout is how long a decision may take; a call may exceed it by an eighth. The default
	// is 100 ms. A batch that uses several slots of a cluster one after the other has this
	// long for each; see Store.Rounds. The caller's context may end the call earlier.
	Timeout time.Duration

	// MaxInFlight bounds the decisions that may be in flight at once; beyond it,
	// calls return weir.ErrBusy immediately. The default is 10,000.
	MaxInFlight int

	// OnReplaced is called when a Set of another process has replaced the limits of a policy that
	// callers of this Store use, so that other limits are in force: when the policy is first
	// used, if the Set was earlier, and after a later Set when the policy is next used. It is
	// called once for each policy and each change of the limits in force for it, also
	// if that puts the policy's own limits in force again, and never for this Store's own Sets. It
	// runs in a goroutine of its own, so it delays no decision; it may call Set, but not Close,
	// which waits for it.
	//
	// The default logs a warning with slog.Default, so that deployed limits are not replaced
	// silently. A function that does nothing turns that off.
	OnReplaced func(Replacement)

	// Now replaces the server's clock, for tests. Rows then outlive their use by
	// ten minutes of the server's time, as that may pass faster.
	Now func() weir.Instant
}

const (
	// DefaultTimeout is the default of Config.Timeout.
	DefaultTimeout = 100 * time.Millisecond

	defaultInFlight = 10_000

	// maxHolds bounds the open reservations of one key. A refusal may have to read
	// all of them to compute RetryAfter.
	maxHolds = 10_000
)

// Validate returns everything that is wrong with the configuration.
func (c Config) Validate() error {
	problems := []error{c.Redis.Validate()}
	if strings.ContainsAny(c.Prefix, "{}") {
		problems = append(problems, fmt.Errorf("redisstore: prefix %q: must not contain braces", c.Prefix))
	}
	if c.Timeout < 0 {
		problems = append(problems, fmt.Errorf("redisstore: timeout %v: must not be negative", c.Timeout))
	}
	if c.MaxInFlight < 0 {
		problems = append(problems, fmt.Errorf("redisstore: max in flight %d: must not be negative", c.MaxInFlight))
	}
	return errors.Join(problems...)
}

var (
	// errBusy: Config.MaxInFlight decisions are in flight.
	errBusy = fmt.Errorf("redisstore: %w", weir.ErrBusy)

	// errTimeout: a decision took longer than Config.Timeout.
	errTimeout = fmt.Errorf("redisstore: %w: no reply in time: %w", weir.ErrUnavailable, context.DeadlineExceeded)

	// errClosed: the Store was closed.
	errClosed = fmt.Errorf("redisstore: %w: closed", weir.ErrUnavailable)

	errChanging = fmt.Errorf("redisstore: %w: the policy's limits keep changing", weir.ErrUnavailable)
)

// Store is a weir.Limiter whose state is in Redis, so that any number of processes
// share their limits. Make one with New.
type Store struct {
	conn     *redisconn.Conn // set by New, like everything up to held
	id       string          // identifies this Store's changes in records
	client   rueidis.Client
	cluster  bool
	prefix   string
	timeout  time.Duration
	max      int64               // decisions that may be in flight
	now      func() weir.Instant // nil = the server's
	keep     int64               // ms by which rows outlive their use
	keepText string
	epoch    int64 // µs
	evictors []Evictor
	unwatch  func()
	closings []func() // of the senders' clients
	queues   []*sendQueue
	sweeper  *timeoutSweeper
	general  bool          // tests: only do.lua is used
	skew     time.Duration // tests: by how much this process's clock is ahead
	held     *heldKeys

	histories sync.Map // name → *history
	replaced  replaced
	bindings  [cached]atomic.Pointer[binding]
	requests  sync.Pool
	healthy   atomic.Pointer[healthyNode] // of a cluster: one that has replied, nil if none is known
	under     atomic.Int64                // requests in flight: queued, or sent and without a reply
	counts    counts
	closing   sync.Once
}

var _ weir.Limiter = (*Store)(nil)

// New connects to Redis. The context bounds that, and nothing later.
func New(ctx context.Context, c Config) (*Store, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	conn, err := redisconn.Open(ctx, redisconn.Config(c.Redis))
	if err != nil {
		return nil, err
	}
	s := &Store{
		conn: conn, client: conn.Client, cluster: conn.Cluster,
		prefix: c.Prefix, timeout: c.Timeout, max: int64(c.MaxInFlight), now: c.Now, keep: time.Second.Milliseconds(), held: newHeldKeys(),
	}
	s.id, s.replaced.hook = rand.Text(), c.OnReplaced
	if c.OnReplaced == nil {
		s.replaced.hook = warnReplaced
	}
	if c.Prefix == "" {
		s.prefix = "weir:"
	}
	if c.Timeout == 0 {
		s.timeout = DefaultTimeout
	}
	if c.MaxInFlight == 0 {
		s.max = defaultInFlight
	}
	if s.now != nil {
		s.keep = (10 * time.Minute).Milliseconds()
	}
	s.keepText = strconv.FormatInt(s.keep, 10)
	s.requests.New = func() any { return newRequest() }
	if err := s.start(ctx, c); err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

// start begins what Close ends.
func (s *Store) start(ctx context.Context, c Config) error {
	epoch, err := s.eval(ctx, epochScript, []string{s.epochKey()}, []string{s.nowText(), recordKept}).ToString()
	if err != nil {
		return s.failed(err)
	}
	if s.epoch, err = strconv.ParseInt(epoch, 10, 64); err != nil {
		return fmt.Errorf("redisstore: %s in Redis is %q, not an instant", s.epochKey(), epoch)
	}
	for _, e := range s.conn.Evictors(ctx) {
		s.evictors = append(s.evictors, Evictor(e))
	}
	if s.unwatch, err = s.conn.Watch(ctx, s.setKeys(), s.recordsChanged); err != nil {
		return err
	}
	s.counts.failures.Store(0) // starting the watch counted one
	if err := s.startQueues(ctx); err != nil {
		return err
	}
	s.sweeper = newTimeoutSweeper(s)
	return nil
}

// startQueues starts the send queues and their senders.
func (s *Store) startQueues(ctx context.Context) error {
	if s.cluster {
		for _, key := range sampleKeys(ClusterPartitions) {
			l := newSendQueue(s)
			l.sampleKey = key
			l.start(s.client)
			s.queues = append(s.queues, l)
		}
		return nil
	}
	l := newSendQueue(s)
	for range senders {
		client, closing, err := s.conn.Direct(ctx)
		if err != nil {
			l.close()
			s.unwatch()
			s.closeAll()
			return err
		}
		s.closings = append(s.closings, closing)
		l.start(client)
	}
	s.queues = []*sendQueue{l}
	return nil
}

func (s *Store) closeAll() {
	for _, closing := range s.closings {
		closing()
	}
}

// ClusterPartitions is the number of partitions of a cluster, each a contiguous range of slots
// with a send queue of its own. A node that does not reply delays only the keys on its own slots,
// and at each end of its range the keys of other nodes that share a send queue with them: a
// sixty-fourth of all keys at most.
const ClusterPartitions = 64

// queueOf returns the send queue for a row.
func (s *Store) queueOf(key string) *sendQueue { return s.queues[s.queueIndexOf(key)] }

// queueIndexOf returns the index of a row's send queue.
func (s *Store) queueIndexOf(key string) int {
	if len(s.queues) == 1 {
		return 0
	}
	return queueIndex(key, len(s.queues))
}

// queueIndex returns which of n send queues has the slot of a key.
func queueIndex(key string, n int) int { return int(redisconn.Slot(key)) * n >> 14 }

// Timeout returns how long a decision may take: Config.Timeout, or its default.
func (s *Store) Timeout() time.Duration { return s.timeout }

// WithTimeout returns the same store with another timeout for Do, for batches that run in the
// background.
func (s *Store) WithTimeout(timeout time.Duration) weir.Limiter { return patient{s, timeout} }

type patient struct {
	*Store
	timeout time.Duration
}

// Do is Store.Do with another timeout.
func (p patient) Do(ctx context.Context, b *weir.Batch) error { return p.do(ctx, b, p.timeout) }

// Partitions returns the number of partitions that fail independently: 1 for one server, and
// for a cluster enough that a node that hangs delays few keys of other nodes. It never
// changes.
func (s *Store) Partitions() int { return len(s.queues) }

// Partition returns, from 0 to Partitions() - 1, the partition of the state of key under p. It
// is the same in every process, and sends no command.
func (s *Store) Partition(p *weir.Policy, key string) int {
	if len(s.queues) == 1 {
		return 0
	}
	return s.queueIndexOf(rowKey(s.rowsOf(p), key))
}

// Close waits for decisions in flight and for Config.OnReplaced, and closes the connections.
func (s *Store) Close() {
	s.closing.Do(func() {
		s.replaced.close()
		for _, l := range s.queues {
			l.close()
		}
		s.sweeper.close()
		s.unwatch()
		s.closeAll()
		s.conn.Close()
	})
}

// recordsChanged is called when the server reports that records were written, and with nil after
// the connection that watches them was lost. Then the senders' idle connections may be broken, too,
// so they are probed before anything is sent.
func (s *Store) recordsChanged(keys []string) {
	if keys == nil {
		s.counts.failures.Add(1)
	}
	s.histories.Range(func(_, known any) bool {
		h := known.(*history)
		for _, key := range keys {
			if key == h.key {
				h.stale.Store(true)
			}
		}
		if keys == nil { // changes may have been missed: treat the record as old
			h.loaded.Store(0)
		}
		return true
	})
}

// Changed marks the limits of the policy of this name as changed by another process, for a caller that
// knows of the change before the server reports it: the record is loaded before the next decision.
func (s *Store) Changed(policy string) {
	if h, ok := s.histories.Load(policy); ok {
		h.(*history).stale.Store(true)
	}
}

// Current returns the policy that decides calls with p: p itself, or its replacement
// by a Set in any process. It is nil if Redis is unavailable.
func (s *Store) Current(ctx context.Context, p *weir.Policy) *weir.Policy {
	n, err := s.resolve(ctx, p)
	if err != nil {
		return nil
	}
	return n.policy
}

// A binding caches the compiled limits in force for a policy.
type binding struct {
	policy *weir.Policy
	limits *compiledLimits
}

// cached is the number of bindings that are cached; a policy's serial number selects its slot.
const cached = 1024

// bound returns the limits in force for p if they are cached and current, else nil.
func (s *Store) bound(p *weir.Policy, now weir.Instant) *compiledLimits {
	b := s.bindings[p.Compiled().Serial%cached].Load()
	if b == nil || b.policy != p || b.limits.version != b.limits.history.version() || b.limits.history.mayHaveChanged(now) {
		return nil
	}
	return b.limits
}

// resolve returns the limits in force for p, and reads the record in Redis if they may have
// changed.
func (s *Store) resolve(ctx context.Context, p *weir.Policy) (*compiledLimits, error) {
	if n := s.bound(p, weir.Now()); n != nil {
		return n, nil
	}
	ctx, cancel := s.withDeadline(ctx)
	defer cancel()
	h := s.historyOf(p.Name())
	if err := h.refresh(ctx); err != nil {
		return nil, err
	}
	if n := s.bound(p, weir.Now()); n != nil {
		return n, nil
	}
	in, last, version := h.inForce(p)
	n, err := s.compileLimits(in, h, version)
	if err != nil {
		return nil, err
	}
	h.note(p, last, version)
	n.requested = p
	s.bindings[p.Compiled().Serial%cached].Store(&binding{p, n})
	return n, nil
}

// Take charges cost units to key under p if they fit all of p's limits, and nothing
// otherwise. Its errors wrap those of package weir; after weir.ErrUnknown the units may
// have been charged, after every other error they were not.
func (s *Store) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	if err := storeapi.CheckCharge(p, key, cost); err != nil {
		return weir.Decision{}, err
	}
	if err := ctx.Err(); err != nil {
		return weir.Decision{}, err
	}
	now := weir.Now()
	n := s.bound(p, now)
	if n == nil {
		var err error
		if n, err = s.resolve(ctx, p); err != nil {
			return weir.Decision{}, err
		}
	}
	if n.policy.ReserveOnly() {
		return weir.Decision{}, weir.ErrReserveOnly
	}
	r := s.requests.Get().(*request)
	r.setTake(n, key, cost)
	s.counts.decisions.Add(1)
	if err := s.wait(ctx, r, now.Add(storeapi.Timeout(ctx, s.timeout))); err != nil {
		return weir.Decision{}, err
	}
	d := r.decision
	s.requests.Put(r)
	return d, nil
}

// wait queues a request and waits for its answer, until deadline at most. After an error
// the request belongs to the sender.
func (s *Store) wait(ctx context.Context, r *request, deadline weir.Instant) error {
	key := r.key
	if r.call != nil {
		key = r.call.charges[0].key
	}
	r.begin(deadline)
	if err := s.queueOf(key).add(r, false); err != nil {
		return err
	}
	if ctx.Done() == nil {
		<-r.done
		return r.outcome()
	}
	select {
	case <-r.done:
		return r.outcome()
	case <-ctx.Done():
		return s.left(r, ctx.Err())
	}
}

// left withdraws a caller who stops waiting because of why.
func (s *Store) left(r *request, why error) error {
	if how := r.leave(); how != done {
		return s.gone(how, why)
	}
	return r.outcome() // the reply arrived at the same time
}

func (s *Store) withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.timeout)
}

// failed returns an error of the connection or the server as callers get it.
func (s *Store) failed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, weir.ErrReserveOnly), strings.HasPrefix(err.Error(), "redisstore: "):
		return err // already classified by this package
	case isState(err):
		return stateError(err)
	case redisconn.IsUnknown(err):
		return unknownOutcome(err)
	}
	return fmt.Errorf("redisstore: %w: %w", weir.ErrUnavailable, err)
}

// isState says whether an error of the server is about the value at one key: the value is of
// another type, is not a row, or makes a script fail. Nothing was changed.
func isState(err error) bool {
	r, ok := rueidis.IsRedisErr(err)
	if !ok {
		return false
	}
	text := r.Error()
	return strings.Contains(text, "WRONGTYPE") || strings.Contains(text, "is not a row of weir") ||
		strings.Contains(text, "user_script") && strings.Contains(text, "attempt to ")
}

// stateError returns an error about the value at one key.
func stateError(why error) error { return fmt.Errorf("redisstore: %w: %w", weir.ErrState, why) }

// unknownOutcome returns the error of a call that was sent and of which, because of why,
// nobody knows whether it was executed.
func unknownOutcome(why error) error { return fmt.Errorf("redisstore: %w: %w", weir.ErrUnknown, why) }

// nowText returns now for a script: "" if the server's clock decides.
func (s *Store) nowText() string {
	if s.now == nil {
		return ""
	}
	return strconv.FormatInt(s.nowMicros(), 10)
}

// nowMicros returns an estimate of the server's clock.
func (s *Store) nowMicros() int64 {
	if s.now == nil {
		return int64(weir.Now().Add(s.skew)) / 1000
	}
	return int64(s.now()) / 1000
}

// micros returns a script's number of microseconds as a duration; -1 is Never.
func micros(n int64) time.Duration {
	if n < 0 {
		return weir.Never
	}
	return time.Duration(n) * time.Microsecond
}
