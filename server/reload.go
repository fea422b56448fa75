package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A section is a part of the configuration that can change while the server runs. A change is a
// transaction over all sections: each prepares its part of the next state, which has no effect; then
// each commits; then the next state replaces the old one. If a section fails, those that have
// committed commit the old state again, in reverse order, and the old state stays.
//
// Requests use one state each. A commit is for effects outside the state, such as the limits in the
// store, which other processes share.
type section struct {
	name string // for errors

	// prepare sets the section's part of next, for which next.live and the parts of earlier
	// sections are set. Old is the state in force, nil at the start.
	prepare func(s *Server, next, old *state) error

	// commit puts the section's part of a state in force: of the next one or, to undo that, of
	// the old one. It is nil if there is nothing to do but to replace the state.
	commit func(s *Server, t *transaction, st *state) error

	// finish does what cannot fail and cannot be undone, when all sections have committed. It is nil
	// if there is nothing.
	finish func(s *Server, t *transaction)
}

// prepareAll makes a state of live. Its error joins those of all sections.
func (s *Server) prepareAll(live Live, old *state) (*state, error) {
	next := &state{live: live.normal()}
	var problems []error
	for _, x := range s.sections {
		if err := x.prepare(s, next, old); err != nil {
			problems = append(problems, err)
			if next.call == nil { // the sections after the policies need them
				break
			}
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return next, nil
}

// A transaction replaces a state by another.
type transaction struct {
	ctx  context.Context
	old  *state // nil at the start
	next *state
}

// undoWithin is how long undoing a failed transaction may take.
const undoWithin = 5 * time.Second

// run commits all sections, or none.
func (t *transaction) run(s *Server) error {
	for i, x := range s.sections {
		if x.commit == nil {
			continue
		}
		if err := x.commit(s, t, t.next); err != nil {
			return errors.Join(fmt.Errorf("server: %s: %w", x.name, err), t.undo(s, s.sections[:i]))
		}
	}
	s.state.Store(t.next)
	for _, x := range s.sections {
		if x.finish != nil {
			x.finish(s, t)
		}
	}
	return nil
}

// undo commits the old state of some sections again, the last one first, even if ctx has ended. The
// section that failed has undone its part itself.
func (t *transaction) undo(s *Server, done []section) (problems error) {
	if t.old == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), undoWithin)
	defer cancel()
	back := &transaction{ctx: ctx, old: t.next, next: t.old}
	for _, x := range slices.Backward(done) {
		if x.commit == nil {
			continue
		}
		if err := x.commit(s, back, t.old); err != nil {
			problems = errors.Join(problems, fmt.Errorf("server: %s: cannot be undone: %w", x.name, err))
		}
	}
	return problems
}

// Reload applies another configuration: policies, clients, operators and the rest of Live;
// certificates are read again. Requests in flight finish with the old configuration, and every
// key's units in use are kept. Limits of live that another process has replaced in the store are
// applied again. If Reload returns an error, the server keeps the old configuration, and metrics
// and /readyz report the failure until the next Reload.
func (s *Server) Reload(ctx context.Context, live Live) error {
	err := s.reload(ctx, live)
	if err != nil {
		s.ReloadFailed(err)
		return err
	}
	s.reloads.Succeeded(time.Now())
	s.trouble.Store(nil)
	return nil
}

// ReloadFailed reports, in metrics and /readyz, that a configuration could not be read.
func (s *Server) ReloadFailed(err error) {
	s.reloads.Failed()
	text := fmt.Sprintf("the last reload, at %s, failed, and the configuration before it is in force: %v",
		time.Now().UTC().Format(time.RFC3339), err)
	s.trouble.Store(&text)
}

// troubleText returns the error of the last reload, "" if it succeeded.
func (s *Server) troubleText() string {
	if t := s.trouble.Load(); t != nil {
		return *t
	}
	return ""
}

func (s *Server) reload(ctx context.Context, live Live) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	known := s.known // those that the state in force has
	if set, err := s.overrides.List(ctx); err != nil {
		s.cfg.Log.Warn(overridesUnreadable, "error", err)
	} else {
		s.known = set
	}
	err := s.replaceLocked(ctx, live)
	if err != nil {
		s.known = known
	}
	return err
}

// replaceLocked replaces the state by that of live, with the overrides in s.known. It requires
// s.changing.
func (s *Server) replaceLocked(ctx context.Context, live Live) error {
	old := s.state.Load()
	next, err := s.prepareAll(live, old)
	if err != nil {
		return err
	}
	if err := s.putInForce(ctx, next); err != nil {
		return err
	}
	return (&transaction{ctx: ctx, old: old, next: next}).run(s)
}

// putInForce applies the limits of a state that another process has replaced in the store. Setting
// a policy to itself changes nothing if it is in force.
func (s *Server) putInForce(ctx context.Context, st *state) error {
	for _, p := range slices.Concat(st.call.Rules.Policies(), st.envoy.Policies(), st.privatePolicies(), st.live.upstreamPolicies()) {
		if err := s.cfg.Limiter.Set(ctx, p, p); err != nil {
			return fmt.Errorf("server: policy %q: %w", p.Name(), err)
		}
	}
	return nil
}
