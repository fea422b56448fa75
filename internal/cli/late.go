package cli

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/overrides"
	"github.com/weirlimit/weir/server"
	"github.com/weirlimit/weir/store/redisstore"
	"github.com/weirlimit/weir/tiered"
)

// errNotConnected is the error of everything in Redis while the daemon has never been connected.
var errNotConnected = fmt.Errorf("%w: Redis has not been reached since the daemon started", weir.ErrUnavailable)

// lateStore is a store in Redis that is connected before or after the daemon starts. Until then
// all calls fail with weir.ErrUnavailable, so that the tier decides by on_error.
type lateStore struct {
	timeout    time.Duration // set by newLateStore, like partitions
	partitions int           // the most that the server may turn out to have
	connected  atomic.Pointer[redisstore.Store]
}

var _ interface {
	weir.Limiter
	tiered.Partitioned
	tiered.Timed
	tiered.TimeoutSetter
	tiered.PolicyTracker
} = (*lateStore)(nil)

func newLateStore(c redisstore.Config) *lateStore {
	s := &lateStore{timeout: cmp.Or(c.Timeout, redisstore.DefaultTimeout), partitions: 1}
	if c.Redis.Sentinel == "" { // otherwise the only address may be that of a node of a cluster
		s.partitions = redisstore.ClusterPartitions
	}
	return s
}

// Take is that of weir.Limiter.
func (s *lateStore) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	if c := s.connected.Load(); c != nil {
		return c.Take(ctx, p, key, cost)
	}
	return weir.Decision{}, errNotConnected
}

// Do is that of weir.Limiter.
func (s *lateStore) Do(ctx context.Context, b *weir.Batch) error {
	if c := s.connected.Load(); c != nil {
		return c.Do(ctx, b)
	}
	return errNotConnected
}

// Set is that of weir.Limiter.
func (s *lateStore) Set(ctx context.Context, old, new *weir.Policy) error {
	if c := s.connected.Load(); c != nil {
		return c.Set(ctx, old, new)
	}
	return errNotConnected
}

// Timeout is that of tiered.Timed.
func (s *lateStore) Timeout() time.Duration { return s.timeout }

// WithTimeout is that of tiered.TimeoutSetter.
func (s *lateStore) WithTimeout(timeout time.Duration) weir.Limiter {
	return patientStore{s, timeout}
}

// patientStore is a lateStore with another timeout for Do.
type patientStore struct {
	*lateStore
	timeout time.Duration
}

func (p patientStore) Do(ctx context.Context, b *weir.Batch) error {
	if c := p.connected.Load(); c != nil {
		return c.WithTimeout(p.timeout).Do(ctx, b)
	}
	return errNotConnected
}

// Partitions is that of tiered.Partitioned, whose number must not change: if the server is not
// known yet, it is that of a cluster.
func (s *lateStore) Partitions() int {
	if c := s.connected.Load(); c != nil {
		return c.Partitions()
	}
	return s.partitions
}

// Partition is that of tiered.Partitioned. Without a connection all keys fail together, so they are
// in one partition; they stay there if the server turns out to be no cluster.
func (s *lateStore) Partition(p *weir.Policy, key string) int {
	if c := s.connected.Load(); c != nil {
		return c.Partition(p, key)
	}
	return 0
}

// Rounds is that of tiered.Partitioned.
func (s *lateStore) Rounds(b *weir.Batch) int {
	if c := s.connected.Load(); c != nil {
		return c.Rounds(b)
	}
	return 1
}

// Current is that of tiered.PolicyTracker.
func (s *lateStore) Current(ctx context.Context, p *weir.Policy) *weir.Policy {
	if c := s.connected.Load(); c != nil {
		return c.Current(ctx, p)
	}
	return nil
}

// Changed is that of tiered.PolicyTracker.
func (s *lateStore) Changed(policy string) {
	if c := s.connected.Load(); c != nil {
		c.Changed(policy)
	}
}

// evicts says whether a server was found to evict keys.
func (s *lateStore) evicts() bool {
	c := s.connected.Load()
	return c != nil && c.Stats().Evicts
}

// lateOverrides are the operators' overrides in Redis, which can be used once it is connected.
type lateOverrides struct {
	store *overrides.Redis // set before ready is closed
	ready chan struct{}    // closed when the store is connected
}

var _ server.Overrides = (*lateOverrides)(nil)

func newLateOverrides() *lateOverrides { return &lateOverrides{ready: make(chan struct{})} }

// use makes the overrides those of a store. It is called once.
func (o *lateOverrides) use(store *overrides.Redis) {
	o.store = store
	close(o.ready)
}

// connected returns the store, nil if there is none yet.
func (o *lateOverrides) connected() *overrides.Redis {
	select {
	case <-o.ready:
		return o.store
	default:
		return nil
	}
}

// Put is that of server.Overrides.
func (o *lateOverrides) Put(ctx context.Context, one server.Override) error {
	if c := o.connected(); c != nil {
		return c.Put(ctx, one)
	}
	return errNotConnected
}

// Remove is that of server.Overrides.
func (o *lateOverrides) Remove(ctx context.Context, policy, key string) (bool, error) {
	if c := o.connected(); c != nil {
		return c.Remove(ctx, policy, key)
	}
	return false, errNotConnected
}

// List is that of server.Overrides.
func (o *lateOverrides) List(ctx context.Context) ([]server.Override, error) {
	if c := o.connected(); c != nil {
		return c.List(ctx)
	}
	return nil, errNotConnected
}

// Watch is that of server.Overrides. It calls changed when the store is connected, too.
func (o *lateOverrides) Watch(ctx context.Context, changed func()) {
	select {
	case <-o.ready:
		o.store.Watch(ctx, changed)
	case <-ctx.Done():
	}
}
