package server

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/ruleset"
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

// overridesUnreadable is the message of a failed List of Overrides.
const overridesUnreadable = "cannot read the operators' overrides; the last known ones stay in force"

// overridesChanged rereads the overrides, which another node may have changed.
func (s *Server) overridesChanged(ctx context.Context) {
	if err := s.refresh(ctx); err != nil && ctx.Err() == nil {
		s.cfg.Log.Warn(overridesUnreadable, "error", err)
	}
}

// overrideID is what identifies an override: its policy and its key.
func overrideID(o Override) [2]string { return [2]string{o.Policy, o.Key} }

// applyOverrides adds operators' overrides to rules. One that does not fit the policies any more is
// logged and left out: it was valid when it was set, and must not prevent the daemon from starting.
func (s *Server) applyOverrides(rules *ruleset.Rules, set []Override) {
	for _, o := range set {
		rule := rules.Rule(o.Policy)
		if rule == nil {
			s.cfg.Log.Warn("ignored an override of an unknown policy", "policy", o.Policy)
			continue
		}
		if err := rule.Override(o.Override); err != nil {
			s.cfg.Log.Warn("ignored an override that does not fit its policy any more", "policy", o.Policy, "error", err)
		}
	}
}

// refresh rereads the overrides that operators have set, here or on another node, and applies
// those that have changed.
func (s *Server) refresh(ctx context.Context) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	return s.refreshLocked(ctx)
}

// refreshLocked requires s.changing.
func (s *Server) refreshLocked(ctx context.Context) error {
	set, err := s.overrides.List(ctx)
	if err != nil {
		return err
	}
	rules := s.state.Load().call.Rules
	was := map[[2]string]Override{}
	for _, o := range s.known {
		was[overrideID(o)] = o
	}
	var changed []Override
	for _, o := range set {
		if old, ok := was[overrideID(o)]; !ok || !reflect.DeepEqual(old, o) {
			changed = append(changed, o)
		}
		delete(was, overrideID(o))
	}
	for _, o := range was {
		if rule := rules.Rule(o.Policy); rule != nil {
			rule.RemoveOverride(o.Key)
		}
	}
	s.applyOverrides(rules, changed)
	s.known = set
	return nil
}

// putOverride stores an override and applies it. One that does not fit its policy is not stored.
func (s *Server) putOverride(ctx context.Context, o Override) error {
	if rule := s.state.Load().call.Rules.Rule(o.Policy); rule != nil {
		if err := rule.CheckOverride(o.Override); err != nil {
			return err
		}
	}
	if err := s.makeRoom(ctx, o); err != nil {
		return err
	}
	if err := s.overrides.Put(ctx, o); err != nil {
		return err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	s.applyOverrides(s.state.Load().call.Rules, []Override{o})
	s.known = append(slices.DeleteFunc(slices.Clone(s.known), func(x Override) bool { return overrideID(x) == overrideID(o) }), o)
	return nil
}

// makeRoom returns ErrTooMany if there are too many overrides for one more. It goes by those that were
// read last, and reads all of them only if these are too many: some may have expired.
func (s *Server) makeRoom(ctx context.Context, o Override) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.fitsLocked(o) {
		return nil
	}
	if err := s.refreshLocked(ctx); err != nil {
		return err
	}
	if !s.fitsLocked(o) {
		return adminapi.ErrTooMany
	}
	return nil
}

// fitsLocked reports whether there is room for an override, or one that it replaces. It requires
// s.changing.
func (s *Server) fitsLocked(o Override) bool {
	return len(s.known) < maxOverrides || slices.ContainsFunc(s.known, func(x Override) bool { return overrideID(x) == overrideID(o) })
}

func (s *Server) removeOverride(ctx context.Context, policy, key string) (bool, error) {
	was, err := s.overrides.Remove(ctx, policy, key)
	if err != nil {
		return false, err
	}
	return was, s.refresh(ctx)
}
