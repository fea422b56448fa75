package main

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/guard"
)

// scenario is a node and its clients.
type scenario struct {
	handler  http.Handler
	guard    *guard.Guard
	begin    time.Time
	clients  []*client
	released bool // the abuser was admitted again after its penalty

	mu         sync.Mutex // guards violations
	violations []guard.Violation
}

// newScenario returns a node whose penalties last as long as penalty says, and its clients.
func newScenario(penalty time.Duration) (s *scenario, err error) {
	s = &scenario{begin: time.Now()}
	for i, name := range []string{"normal", "app start", "archive", "collector", "abuser"} {
		ip := "198.51.100." + string(rune('1'+i))
		s.clients = append(s.clients, &client{name: name, identity: newIdentity(name), ip: ip, results: map[string]*result{}})
	}
	config := limits(penalty, s.client("archive").address())
	config.Hooks.OnViolation = func(v guard.Violation) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.violations = append(s.violations, v)
	}
	s.handler, s.guard, err = newNode(config)
	return s, err
}

func (s *scenario) client(name string) *client {
	return s.clients[slices.IndexFunc(s.clients, func(c *client) bool { return c.name == name })]
}

// run lets the clients call the node at url until ctx ends.
func (s *scenario) run(ctx context.Context, url string, transport http.RoundTripper) {
	for _, c := range s.clients {
		c.url, c.http = url, &http.Client{Transport: transport}
	}
	var all sync.WaitGroup
	all.Go(func() { s.client("normal").normal(ctx) })
	all.Go(func() { s.client("app start").appStart(ctx) })
	all.Go(func() { s.client("archive").archive(ctx) })
	all.Go(func() { s.client("collector").collect(ctx) })
	all.Go(func() { s.released = s.client("abuser").hammer(ctx, s.guard, s.client("normal").identity) })
	all.Wait()
}

// reported returns the violations of a kind by a client.
func (s *scenario) reported(c *client, kind guard.Kind) (list []guard.Violation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.violations {
		if v.Subject == "user:"+c.address() && v.Kind == kind {
			list = append(list, v)
		}
	}
	return list
}
