package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"

	"github.com/weirlimit/weir"
)

// maxBody is the greatest length of a request body. A check with the longest
// key, every byte of it escaped, stays below 4 KiB.
const maxBody = 64 << 10

// scratch is the memory of one request, used again by later ones.
type scratch struct {
	body bytes.Buffer
	out  []byte
}

var scratches = sync.Pool{New: func() any { return &scratch{out: make([]byte, 0, 256)} }}

// check answers POST /v1/check.
func (a *api) check(w http.ResponseWriter, r *http.Request) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	if !readBody(w, r, &s.body) {
		return
	}
	req, err := decodeCheck(s.body.Bytes())
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	p, ok := a.policies[string(req.policy)]
	if !ok {
		writeProblem(w, http.StatusNotFound, "no policy is called "+quote(string(req.policy))+"; GET / lists those there are")
		return
	}
	d, err := a.decide(r.Context(), p.policy, req)
	if err != nil {
		a.writeUndecided(w, r, p.policy, err)
		return
	}
	a.logDecision(r.Context(), p.policy, req, d)
	s.out = appendDecision(s.out[:0], p, d)
	w.Header()["Content-Type"] = contentJSON
	w.Write(s.out) // an error means that the caller is gone
}

// readBody fills body, or answers with a problem and returns false.
func readBody(w http.ResponseWriter, r *http.Request, body *bytes.Buffer) bool {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		writeProblem(w, http.StatusUnsupportedMediaType, "bodies are taken as they are; leave Content-Encoding out")
		return false
	}
	body.Reset()
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLong *http.MaxBytesError
	switch {
	case err == nil:
		return true
	case errors.As(err, &tooLong):
		writeProblem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("a body may have %d bytes", maxBody))
	case errors.Is(err, os.ErrDeadlineExceeded):
		writeProblem(w, http.StatusRequestTimeout, "the body took too long to come")
	default:
		writeProblem(w, http.StatusBadRequest, "the body ended early")
	}
	return false
}

func (a *api) decide(ctx context.Context, p *weir.Policy, req checkRequest) (weir.Decision, error) {
	if req.peek {
		return weir.Peek(ctx, a.limiter, p, req.key, req.cost)
	}
	return a.limiter.Take(ctx, p, req.key, req.cost)
}

// writeUndecided answers when the limiter could not decide.
func (a *api) writeUndecided(w http.ResponseWriter, r *http.Request, p *weir.Policy, err error) {
	var badCost *weir.CostError
	var badKey *weir.KeyError
	switch {
	case errors.Is(err, weir.ErrReserveOnly):
		writeProblem(w, http.StatusBadRequest, fmt.Sprintf(
			"policy %q limits concurrency: slots are held, not spent, so a check cannot take one", p.Name()))
	case errors.As(err, &badCost), errors.As(err, &badKey):
		writeProblem(w, http.StatusBadRequest, err.Error())
	case r.Context().Err() != nil: // the caller left; nobody is to blame and nobody reads this
		writeProblem(w, http.StatusServiceUnavailable, "the request was given up")
	default:
		a.log.Error("no decision", "policy", p.Name(), "error", err)
		writeProblem(w, http.StatusServiceUnavailable, "no decision could be made; the daemon's log says why")
	}
}

// logDecision logs at debug level, the only one that shows keys.
func (a *api) logDecision(ctx context.Context, p *weir.Policy, req checkRequest, d weir.Decision) {
	if !a.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	a.log.DebugContext(ctx, "decision", "policy", p.Name(), "key", req.key, "cost", req.cost, "peek", req.peek,
		"allowed", d.Allowed, "reason", d.Reason.String())
}
