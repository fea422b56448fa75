package adminapi

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/server/internal/strictjson"
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
		slog.String("policy", strictjson.Clip(c.req.policy)), slog.String("key", c.req.key),
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

// auditRefusal logs a failed authentication. Callers can cause any number of these, so at
// most one line a second is written, with the number of those that were skipped.
func (a *api) auditRefusal(r *http.Request, refusal *identity.Refusal) {
	others, pass := a.refusals.sample(time.Since(a.began))
	if !pass {
		return
	}
	a.Log.Warn("audit", "operator", "unknown", "remote", r.RemoteAddr, "action", "authenticate",
		"path", r.URL.Path, "outcome", "refused", "status", refusal.Status, "unreported", others)
}

// sampler lets one event a second through. Of concurrent events, the one whose
// compare-and-swap of next succeeds passes, and the others are counted as skipped. An event
// that is skipped during the swap of skipped is reported with the next one that passes.
type sampler struct {
	next    atomic.Int64 // the time since the start at which the next event may pass
	skipped atomic.Int64 // events since the last one that passed
}

// sample reports whether an event at now may pass and, if so, how many were skipped since the
// previous one that passed.
func (s *sampler) sample(now time.Duration) (skipped int64, pass bool) {
	next := s.next.Load()
	if int64(now) < next || !s.next.CompareAndSwap(next, int64(now+time.Second)) {
		s.skipped.Add(1)
		return 0, false
	}
	return s.skipped.Swap(0), true
}
