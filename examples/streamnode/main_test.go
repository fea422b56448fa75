package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/guard"
)

// TestScenario runs the whole scenario on the clock of a bubble, so that counts do not depend on the
// speed of the machine.
func TestScenario(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := newScenario(3 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		listener := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		server := newServer(s.handler)
		go server.Serve(listener)
		transport := &http.Transport{DialContext: listener.dial}
		ctx, cancel := context.WithTimeout(t.Context(), 9900*time.Millisecond) // between two calls of the normal client
		s.run(ctx, "http://node", transport)
		cancel()
		check(t, s)
		transport.CloseIdleConnections()
		server.Close()
		s.guard.Close()
	})
}

func check(t *testing.T, s *scenario) {
	for name, want := range map[string]result{
		"normal": {ok: 50}, "app start": {ok: 67}, "archive": {ok: 50}, "collector": {ok: 11, refused: 1},
	} {
		c := s.client(name)
		if got := c.total(); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		for _, kind := range []guard.Kind{guard.Exceeded, guard.RapidFire, guard.Penalized} {
			if list := s.reported(c, kind); len(list) > 0 {
				t.Errorf("%s: %+v", name, list)
			}
		}
	}

	abuser := s.client("abuser")
	if r := abuser.results["Register"]; r.ok != 1 || r.refused == 0 {
		t.Errorf("Register: %+v, want one admitted", r)
	}
	if r := abuser.results["CreateStream"]; r.ok < 5 || r.ok > 7 || r.refused < 100 { // a burst of 5, then one in 6 s
		t.Errorf("CreateStream: %+v", r)
	}
	if r := abuser.results["AddEvent"]; r.ok != 1 || r.failed < 50 || r.refused < 100 { // forged events fail
		t.Errorf("AddEvent: %+v", r)
	}
	flagged, penalized := s.reported(abuser, guard.RapidFire), s.reported(abuser, guard.Penalized)
	if len(flagged) == 0 || len(penalized) != 1 || flagged[0].At.After(penalized[0].At) || !s.released {
		t.Errorf("flagged %v, penalized %v, released %v", flagged, penalized, s.released)
	}

	stats := s.guard.Stats()
	if sub := stats.Subscriptions; sub.Open != 0 || sub.Refused != (guard.SubscriptionRefusals{TooMany: 1}) {
		t.Errorf("subscriptions: %+v", sub)
	}
	if stats.Exempted != 50 || stats.Violations[guard.Penalized] != 1 || stats.InFlight != 0 {
		t.Errorf("%+v", stats)
	}
	if top := s.guard.Offenders(3); len(top) != 1 || top[0].Subject != "user:"+abuser.address() {
		t.Errorf("offenders %+v", top)
	}

	var report strings.Builder
	s.report(&report)
	metrics := httptest.NewRecorder()
	s.handler.ServeHTTP(metrics, httptest.NewRequest("GET", "/metrics", nil))
	for text, want := range map[string]string{
		report.String():       "google.rpc.RetryInfo",
		metrics.Body.String(): `weir_guard_violations_total{kind="penalized",shadow="false"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in:\n%s", want, text)
		}
	}
}

// TestTokens: nobody is somebody else.
func TestTokens(t *testing.T) {
	alice, bob := newIdentity("alice"), newIdentity("bob")
	for token, want := range map[string]string{
		alice.token(): alice.address(), bob.token(): bob.address(), alice.sign("event session"): "", "": "", "AAAA": "",
	} {
		ctx, err := authenticate(t.Context(), http.Header{"Authorization": {"Bearer " + token}})
		if want == "" {
			if err == nil {
				t.Errorf("%q is valid", token)
			}
			continue
		}
		if s, _ := guard.SubjectOf(ctx); err != nil || s != guard.User(want) {
			t.Errorf("%v, %v, want %s", s, err, want)
		}
	}
	forged := bob.event("hello")
	if _, ok := creator(t.Context(), object(forged)); !ok {
		t.Error("an event of bob is not his")
	}
	forged["creator"] = alice.address()
	if _, ok := creator(t.Context(), object(forged)); ok {
		t.Error("an event of bob is alice's")
	}
}

// pipes is a network within a bubble of synctest, where real sockets cannot be used.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- local{server}:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, io.EOF
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return loopback }

// local is a connection from the address of the load balancer.
type local struct{ net.Conn }

func (local) RemoteAddr() net.Addr { return loopback }

var loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
