package adminapi

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/golden"
	"github.com/weirlimit/weir/ruleset"
)

// newGuard returns the guard of these tests. A subject is penalized when it is refused first.
func newGuard(t *testing.T) *guard.Guard {
	t.Helper()
	return newGuardOn(t, apitest.Table(t, apitest.NewClock().Now))
}

func newGuardOn(t *testing.T, l weir.Limiter) *guard.Guard {
	t.Helper()
	g, err := guard.New(l, guard.Config{
		BeforeAuth: guard.BeforeAuth{PerIP: []ruleset.Limit{{Limit: weir.PerMinute(300)}}},
		Default:    guard.Endpoint{Limits: []ruleset.Limit{{Limit: weir.PerMinute(50)}}},
		Endpoints: []guard.Endpoint{
			{Pattern: "/river.StreamService/CreateStream", Limits: []ruleset.Limit{{Limit: weir.PerMinute(2)}}},
			{Pattern: "/river.StreamService/GetStream", Mode: ruleset.Shadow, Limits: []ruleset.Limit{{Limit: weir.PerMinute(3)}}},
		},
		Plans:     []guard.Plan{{Name: "pro", Multiplier: 10}},
		Penalties: &guard.Penalties{After: 1}, Measure: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// call sends requests to an endpoint as a user.
func (d *daemon) call(path, user string, times int) {
	d.t.Helper()
	for range times {
		var p guard.Pass
		_, err := d.guard.Enter(d.t.Context(), &p, guard.Request{Path: path, Address: netip.MustParseAddr("192.0.2.1")})
		d.must(err)
		_, err = d.guard.Identify(d.t.Context(), &p, guard.User(user))
		d.must(err)
		p.Done(d.t.Context(), false)
	}
}

func (d *daemon) createStreams(user string, times int) {
	d.call("/river.StreamService/CreateStream", user, times)
}

// Every answer about the guard.
func TestGuardAnswers(t *testing.T) {
	frozen(t, func(t *testing.T) {
		d := newDaemon(t)
		d.createStreams("alice", 5)
		d.createStreams("bob\n", 1)
		d.call("/river.StreamService/GetStream", "bob", 7)
		golden.Check(t, "testdata/guard.golden", d.converse(
			"GET /admin/v1/guard",
			"GET /admin/v1/guard?top=0",
			"GET /admin/v1/guard/subject?subject=user:alice",
			"GET /admin/v1/guard/subject?subject=user:bob",
			"GET /admin/v1/guard/subject?subject=user:bob&plan=pro",
			"GET /admin/v1/guard/subject?subject=cert:spiffe://example.org/billing&path=/river.StreamService/CreateStream",
			`POST /admin/v1/guard/pardon {"subject":"user:alice"}`,
			"GET /admin/v1/guard/subject?subject=user:alice",
			`POST /admin/v1/guard/pardon {"subject":"user:alice"}`,
		))
	})
}

// A pardon is an entry of the audit log, whoever tried it, and ends the penalty only if it was done.
func TestPardonIsAudited(t *testing.T) {
	frozen(t, func(t *testing.T) {
		d := newDaemon(t).guarded()
		d.createStreams("alice", 5)
		penalized := func() bool {
			until, err := d.guard.Penalty(t.Context(), "user:alice")
			d.must(err)
			return !until.IsZero()
		}
		for _, tt := range []struct {
			token, want string
			penalized   bool
		}{
			{readToken, "level=WARN msg=audit operator=viewer remote=192.0.2.1:1234 action=guard.pardon policy=\"\" key=user:alice outcome=refused status=403\n", true},
			{writeToken, "level=INFO msg=audit operator=editor remote=192.0.2.1:1234 action=guard.pardon policy=\"\" key=user:alice outcome=done status=200\n", false},
		} {
			before := len(d.log.String())
			d.send(`POST /admin/v1/guard/pardon {"subject":"user:alice"}`, bearer(tt.token)...)
			if got := d.log.String()[before:]; got != tt.want {
				t.Errorf("logged %q, want %q", got, tt.want)
			}
			if penalized() != tt.penalized {
				t.Errorf("penalized: %v, want %v", !tt.penalized, tt.penalized)
			}
		}
	})
}

// A daemon without a guard says so.
func TestNoGuard(t *testing.T) {
	d := newDaemon(t)
	for name, config := range map[string]func(*Config){
		"nil":         func(c *Config) { c.Guard = nil },
		"not for now": func(c *Config) { c.Guard = func() *guard.Guard { return nil } },
	} {
		c := d.config()
		config(&c)
		d.http = New(c)
		const want = `{"type":"about:blank","title":"Not Found","status":404,"detail":"this daemon has no guard; a section guard: of its configuration makes one"}`
		for _, what := range []string{"GET /admin/v1/guard", "GET /admin/v1/guard/subject?subject=user:alice", `POST /admin/v1/guard/pardon {"subject":"user:alice"}`} {
			if w := d.send(what); w.Code != 404 || w.Body.String() != want && w.Body.String() != want+"\n" {
				t.Errorf("%s: %s: %d %s", name, what, w.Code, w.Body)
			}
		}
	}
}

// brokenLimiter is a store that does not answer.
type brokenLimiter struct{ weir.Limiter }

func (brokenLimiter) Do(context.Context, *weir.Batch) error { return errors.New("dial: refused") }

// When the store does not answer, the counts of this process are there all the same.
func TestGuardWithABrokenStore(t *testing.T) {
	d := newDaemon(t)
	d.guard = newGuardOn(t, brokenLimiter{apitest.Table(t, nil)})
	for what, want := range map[string]int{
		"GET /admin/v1/guard":                                  200,
		"GET /admin/v1/guard/subject?subject=user:alice":       503,
		`POST /admin/v1/guard/pardon {"subject":"user:alice"}`: 503,
	} {
		if w := d.send(what); w.Code != want {
			t.Errorf("%s: %d, want %d: %s", what, w.Code, want, w.Body)
		}
	}
}

// Penalties end to the second.
func TestPenaltyText(t *testing.T) {
	for _, tt := range []struct {
		until time.Time
		want  string
	}{
		{time.Time{}, ""},
		{noon, "2026-05-17T12:00:00Z"},
		{noon.Add(-time.Microsecond).In(time.FixedZone("", 3600)), "2026-05-17T12:00:00Z"},
	} {
		if got := penaltyText(tt.until); got != tt.want {
			t.Errorf("%v is %q, want %q", tt.until, got, tt.want)
		}
	}
}
