package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/server/internal/adminapi"
)

// Overrides stores the overrides that operators set, for all nodes that share the counters.
type Overrides interface {
	// Put stores an override until it expires. It replaces one for the same policy and key.
	Put(ctx context.Context, o Override) error

	// Remove removes an override. It returns false if there was none.
	Remove(ctx context.Context, policy, key string) (bool, error)

	// List returns the overrides that have not expired.
	List(ctx context.Context) ([]Override, error)

	// Watch calls changed whenever this node or another one may have changed the list, until
	// ctx ends.
	Watch(ctx context.Context, changed func())
}

// Override is an override of a policy.
type Override = adminapi.Override

// maxOverrides bounds the overrides that operators may set.
const maxOverrides = 10_000

// memoryOverrides stores overrides in memory, until the process ends.
type memoryOverrides struct {
	mu   sync.Mutex // guards the field below
	list []Override
}

func (m *memoryOverrides) Put(_ context.Context, o Override) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removeLocked(o.Policy, o.Key)
	m.list = append(m.list, o)
	return nil
}

func (m *memoryOverrides) Remove(_ context.Context, policy, key string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.removeLocked(policy, key), nil
}

func (m *memoryOverrides) removeLocked(policy, key string) bool {
	before := len(m.list)
	m.list = slices.DeleteFunc(m.list, func(o Override) bool { return o.Policy == policy && o.Key == key })
	return len(m.list) < before
}

func (m *memoryOverrides) List(context.Context) ([]Override, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.list = slices.DeleteFunc(m.list, func(o Override) bool { return !o.Until.IsZero() && !now.Before(o.Until) })
	return slices.Clone(m.list), nil
}

// Watch never calls changed: only this process changes the list, and it applies changes itself.
func (m *memoryOverrides) Watch(ctx context.Context, _ func()) { <-ctx.Done() }
