package adminapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/weirhttp"
)

// problem is an error that says by itself how it is answered.
type problem struct{ weirhttp.Problem }

func (p *problem) Error() string { return p.Detail }

// problemf returns a problem whose kind the status says. The detail says what to change; it
// must not have keys in it.
func problemf(status int, format string, args ...any) *problem {
	return &problem{weirhttp.Problem{Status: status, Detail: fmt.Sprintf(format, args...)}}
}

// finish writes an answer, or what went wrong. A stream has written already.
func (a *api) finish(c *call, answer any, err error) {
	var (
		bad     *problem
		refusal *identity.Refusal
	)
	switch {
	case errors.As(err, &bad):
		bad.Write(c.w)
	case errors.As(err, &refusal):
		refusal.Write(c.w)
	case err != nil && c.r.Context().Err() != nil: // the caller left; nobody is to blame and nobody reads this
		problemf(http.StatusServiceUnavailable, "the request was canceled").Write(c.w)
	case err != nil:
		a.Log.Error("admin call failed", "path", c.r.URL.Path, "error", err)
		problemf(http.StatusServiceUnavailable, "the call failed; the daemon's log says why").Write(c.w)
	case answer != nil:
		a.write(c, answer)
	}
}

// write answers with JSON.
func (a *api) write(c *call, answer any) {
	body, err := json.Marshal(answer)
	if err != nil {
		a.Log.Error("admin call failed", "path", c.r.URL.Path, "error", err)
		problemf(http.StatusInternalServerError, "the answer cannot be written as JSON; the daemon's log says why").Write(c.w)
		return
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.Write(append(body, '\n')) // an error means that the caller is gone
}

// statusOf returns the status that finish answers with.
func statusOf(err error) int {
	var (
		bad     *problem
		refusal *identity.Refusal
	)
	switch {
	case err == nil:
		return http.StatusOK
	case errors.As(err, &bad):
		return bad.Status
	case errors.As(err, &refusal):
		return refusal.Status
	}
	return http.StatusServiceUnavailable
}
