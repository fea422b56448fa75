package adminapi

import (
	"log/slog"
	"net/http"

	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/server/internal/strictjson"
)

// audit notes a change, or that one was tried. The values are quoted by slog.
func (a *api) audit(x *exchange, action string, problem *call.Error) {
	status, level := http.StatusOK, slog.LevelInfo
	if problem != nil {
		status, level = problem.Status(), slog.LevelWarn
	}
	a.Log.LogAttrs(x.r.Context(), level, "audit",
		slog.String("operator", x.operator), slog.String("remote", x.r.RemoteAddr), slog.String("action", action),
		slog.String("policy", strictjson.Clip(x.req.policy)), slog.String("key", x.req.key),
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
