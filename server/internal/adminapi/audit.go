package adminapi

import (
	"log/slog"
	"net/http"

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
