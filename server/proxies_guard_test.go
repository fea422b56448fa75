//go:build linux

package server_test

import (
	"errors"
	"fmt"
	"testing"
)

// nginx-guard.conf and guard.yaml do with nginx what docs/guard.md says.
func TestGuardProxy(t *testing.T) {
	s := newSetupWith(t, "guard.yaml", "guard-keys")
	s.run(nginx, "nginx-guard.conf")
	s.steady("the default", s.guardsDefault)
	s.steady("an endpoint", s.guardsEndpoint)
	s.steady("logins", s.guardsLogin)
	s.steady("the stage before authentication", s.guardsAddress)
	s.stopWeir()
	s.steady("weir is dead", s.refusesWhileDown)
}

// guardsDefault: other endpoints share a count, a disabled one has none, and a client cannot choose another
// endpoint.
func (s *setup) guardsDefault() error {
	c := s.client(s.fresh())
	for i, path := range []string{"/", "/shop?a=b", "//shop/../cart"} {
		a, err := c.get(path, "X-Forwarded-Uri", "/status", "X-Forwarded-Method", "GET", "X-Original-Uri", "/status", "X-User", fmt.Sprint(i))
		if err != nil {
			return err
		}
		if err := errors.Join(a.is(200), a.has("RateLimit", fmt.Sprintf(`"guard.default";r=%d`, 9-i), "RateLimit-Policy", `"guard.default";q=10;w=10`)); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	a, err := c.get("/status")
	if err != nil {
		return err
	}
	return errors.Join(a.is(200), a.has("RateLimit", "", "RateLimit-Policy", ""))
}

// guardsEndpoint: an endpoint has its own count, by API key or address.
func (s *setup) guardsEndpoint() error {
	c := s.client(s.fresh())
	for i := range 3 {
		a, err := c.get(fmt.Sprintf("/reports/%d", i))
		if err != nil {
			return err
		}
		switch {
		case i < 2 && a.is(200) != nil:
			return a.is(200)
		case i == 2:
			if err := errors.Join(a.is(429), a.has("RateLimit", `"GET.reports.id";r=0;t=30`, "Retry-After", "30")); err != nil {
				return err
			}
		}
	}
	wrong, err := c.get("/reports/1", "X-Api-Key", "wrong")
	if err != nil {
		return err
	}
	alice, err := c.get("/reports/1", "X-Api-Key", "alice-demo-key")
	if err != nil {
		return err
	}
	return errors.Join(wrong.is(429), alice.is(200), alice.has("RateLimit-Policy", `"GET.reports.id";q=20;w=60`))
}

// guardsLogin: the limit of logins is by address and not shown. Every one counts.
func (s *setup) guardsLogin() error {
	c := s.client(s.fresh())
	for i := range 6 {
		a, err := c.send("POST", "/login", nil)
		if err != nil {
			return err
		}
		want := 200
		if i == 5 {
			want = 429
			if err := a.has("Retry-After", "12"); err != nil {
				return err
			}
		}
		if err := errors.Join(a.is(want), a.has("RateLimit", "", "RateLimit-Policy", "")); err != nil {
			return fmt.Errorf("login %d: %w", i, err)
		}
	}
	return nil
}

// guardsAddress: the limit of an address applies to disabled endpoints and whatever key is sent.
func (s *setup) guardsAddress() error {
	c := s.client(s.fresh())
	for i := range 31 {
		a, err := c.get("/status", "X-Api-Key", fmt.Sprint("made-up-", i))
		if err != nil {
			return err
		}
		want := 200
		if i == 30 {
			want = 429
		}
		if err := errors.Join(a.is(want), a.has("RateLimit", "", "RateLimit-Policy", "")); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
	}
	return nil
}
