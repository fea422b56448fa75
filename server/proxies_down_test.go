//go:build linux

package server_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// While weir is down, a proxy that fails open lets requests pass within a second, with
// their bodies, and tells nothing about limits.
func (s *setup) passesWhileDown() error {
	c := s.client(s.fresh())
	for range 6 {
		a, err := c.send("POST", "/", strings.NewReader("body"), forged()...)
		if err != nil {
			return err
		}
		if err := errors.Join(a.is(200), a.isQuick(), a.has("RateLimit", "", "RateLimit-Policy", "", "Retry-After", "")); err != nil {
			return err
		}
		if got := s.app.take(); len(got) != 1 || got[0].body != sha256.Sum256([]byte("body")) {
			return fmt.Errorf("the application got %v", got)
		}
	}
	a, err := c.get("/status/403")
	if err != nil {
		return err
	}
	return errors.Join(a.is(403), a.has("Retry-After", "17"))
}

// A policy that is off has nothing to tell about limits.
func (s *setup) passesUntold() error {
	a, err := s.client(s.fresh()).get("/")
	if err != nil {
		return err
	}
	return errors.Join(a.is(200), a.has("RateLimit", "", "RateLimit-Policy", "", "Retry-After", ""))
}

// While weir is down, a proxy that fails closed says so within a second.
func (s *setup) refusesWhileDown() error {
	c := s.client(s.fresh())
	for range 3 {
		a, err := c.send("POST", "/", strings.NewReader("body"))
		if err != nil {
			return err
		}
		if err := errors.Join(a.is(503), a.isQuick(), a.has("Retry-After", "1", "Cache-Control", "no-store", "Content-Type", "application/problem+json")); err != nil {
			return err
		}
		if !json.Valid([]byte(a.body)) {
			return fmt.Errorf("the body is %q", a.body)
		}
		if got := s.app.take(); len(got) > 0 {
			return fmt.Errorf("the application got %v", got)
		}
	}
	return nil
}

// An answer of weir's that means a mistake in a configuration lets nothing pass, open or
// closed: nobody would notice the mistake.
func (s *setup) refusesWhatIsWrong() error {
	a, err := s.client(s.fresh()).get("/")
	if err != nil {
		return err
	}
	if got := s.app.take(); len(got) > 0 || a.status < 400 || a.status == 429 {
		return fmt.Errorf("%d, and the application got %v", a.status, got)
	}
	return nil
}

func (a *answer) isQuick() error {
	if a.took > time.Second {
		return fmt.Errorf("took %v, want at most 1 s", a.took)
	}
	return nil
}
