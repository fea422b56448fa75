package adminapi

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/identity"
)

// audit notes a change, or that one was tried. The values are quoted by slog.
func (a *api) audit(c *call, action string, err error) {
	status := statusOf(err)
	level := slog.LevelInfo
	if err != nil {
		level = slog.LevelWarn
	}
	a.Log.LogAttrs(c.r.Context(), level, "audit",
		slog.String("operator", c.operator), slog.String("remote", c.r.RemoteAddr), slog.String("action", action),
		slog.String("policy", clip(c.req.policy)), slog.String("key", c.req.key),
		slog.String("outcome", outcome(status)), slog.Int("status", status))
}

// outcome says in a word what became of a change.
func outcome(status int) string {
	switch {
	case status == http.StatusOK:
		return "done"
	case status == http.StatusForbidden || status == http.StatusTooManyRequests:
		return "refused"
	case status < http.StatusInternalServerError:
		return "invalid"
	}
	return "failed" // it may have been carried out
}

// doubt notes that somebody failed to prove who they are. Whoever does that on purpose can
// do it often, so one line a second tells of all.
func (a *api) doubt(r *http.Request, no *identity.Refusal) {
	others, tell := a.doubts.sample(time.Since(a.began))
	if !tell {
		return
	}
	a.Log.Warn("audit", "operator", "unknown", "remote", r.RemoteAddr, "action", "authenticate",
		"path", r.URL.Path, "outcome", "refused", "status", no.Status, "unreported", others)
}

// sampler lets one event a second through. Of several at the same time the one whose swap
// of next succeeds is let through, and the others are counted; a count that comes while
// it is read is told of with the next.
type sampler struct {
	next    atomic.Int64 // when, since the start, the next may pass
	skipped atomic.Int64 // since the last one passed
}

// sample says whether an event at now may pass and, if so, how many did not before it.
func (s *sampler) sample(now time.Duration) (skipped int64, pass bool) {
	next := s.next.Load()
	if int64(now) < next || !s.next.CompareAndSwap(next, int64(now+time.Second)) {
		s.skipped.Add(1)
		return 0, false
	}
	return s.skipped.Swap(0), true
}
