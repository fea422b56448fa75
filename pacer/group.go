package pacer

import (
	"errors"
	"fmt"
	"sync"
)

// Group gives goroutines the pacer that a Spec says they should have, one for all
// of them or one each, and changes them all together. Its methods may be called by
// any number of goroutines.
type Group struct {
	mu     sync.Mutex // guards the fields below, and is held while pacers change
	spec   Spec       // in force; the verb is DoStart or DoStop, whichever was last
	shared *Pacer     // of Activity
	own    map[*Pacer]struct{}
}

// NewGroup returns a group that runs, or that waits for its first start or restart
// if the verb is DoStop or DoConfigure.
func NewGroup(s Spec) (*Group, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	g := &Group{spec: s.after(DoStop), own: map[*Pacer]struct{}{}}
	if s.Scope == Activity {
		g.shared = g.newPacer()
	}
	return g, nil
}

// after returns s with the verb that sums up what has happened so far: last is
// DoStart or DoStop, and then came s.
func (s Spec) after(last Verb) Spec {
	switch s.Verb {
	case DoStart, DoRestart:
		s.Verb = DoStart
	case DoConfigure:
		s.Verb = last
	}
	return s
}

// newPacer returns a pacer that goes as the group does.
func (g *Group) newPacer() *Pacer {
	p, err := New(g.spec.Config())
	if err != nil {
		panic(err) // NewGroup and Apply have seen to it
	}
	if g.spec.Verb == DoStop {
		p.Stop()
	}
	return p
}

// Join returns the pacer for one more goroutine: with the scope Activity the one
// that all share, with Thread a new one, whose first unit is due now. The group
// keeps a new one until Leave.
func (g *Group) Join() *Pacer {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shared != nil {
		return g.shared
	}
	p := g.newPacer()
	g.own[p] = struct{}{}
	return p
}

// Leave ends what Join began. A pacer of its own stays as it is from then on; one
// that is shared stays with the others.
func (g *Group) Leave(p *Pacer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.own, p)
}

// Apply does what s says with all pacers, one after the other, and with those that
// join later. It does nothing if s is not valid or has another scope.
func (g *Group) Apply(s Spec) error {
	if err := s.Validate(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.Scope != g.spec.Scope {
		return fmt.Errorf("pacer: scope %v: want %v, as the group began", s.Scope, g.spec.Scope)
	}
	g.spec = s.after(g.spec.Verb)
	if g.shared != nil {
		return g.shared.Apply(s)
	}
	var problems []error
	for p := range g.own {
		problems = append(problems, p.Apply(s))
	}
	return errors.Join(problems...)
}
