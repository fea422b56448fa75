package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"
)

// sending is a request on its way.
type sending struct {
	pool    *Pool
	ctx     context.Context // of the request
	request *http.Request
	body    []byte
	call    *Call
	began   time.Time
	timeout time.Duration // until an answer begins, 0 for the pool's

	tried  []*endpoint   // that have failed or refused
	queued time.Duration // until it was sent for the last time, or has failed for good without that
	sent   int           // how often it was sent
}

// Send sends a request to an endpoint that can take it: to the endpoint's URL, with its headers. The request's path
// and query are added to those of the URL; its body is read before, as it may be sent again: up to 16 MiB, after which
// the error is ErrBodyTooLong. A longer one can be passed as Call.Body. If no endpoint has room, the request waits.
//
// The response may be a refusal of the provider, if it could not be asked elsewhere. Its body must be closed. The error
// is a *LimitedError, a *DownError or a *TryError, the context's, or that of the limiter if it could not decide.
func (p *Pool) Send(r *http.Request, c *Call) (*Reply, error) {
	s := &sending{pool: p, ctx: r.Context(), request: r, call: c, began: c.Began}
	if s.began.IsZero() {
		s.began = time.Now()
	}
	p.requests.Add(1)
	p.retries.request()
	var err error
	if s.body, err = bodyOf(r, c); err != nil {
		return nil, err
	}
	reply, err := s.run()
	p.queueTime.Add(s.queued)
	switch limited := (*LimitedError)(nil); {
	case errors.As(err, &limited):
		p.limited.Add(1)
	case err != nil && s.ctx.Err() == nil:
		p.failed.Add(1)
	case err != nil:
		p.cancelled.Add(1)
	}
	return reply, err
}

// maxBody is how much of a request's body Send reads.
const maxBody = 16 << 20

// ErrBodyTooLong is returned by Send for a request whose body is too long to be kept. Nothing was charged or sent.
var ErrBodyTooLong = fmt.Errorf("upstream: the body of the request has more than %d MiB: set Call.Body instead", maxBody>>20)

// bodyOf returns what is sent as the body of a request, which it closes; nil if there is none.
func bodyOf(r *http.Request, c *Call) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return c.Body, nil
	}
	defer r.Body.Close()
	switch {
	case c.Body != nil:
		return c.Body, nil
	case r.ContentLength > maxBody:
		return nil, ErrBodyTooLong
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = ErrBodyTooLong
	}
	return body, err
}

// run sends the request until it is answered or must not be sent again. The answer of the last endpoint that was
// tried counts, if none takes it after that.
func (s *sending) run() (*Reply, error) {
	var reply *Reply
	var failure error
	for {
		l, err := s.acquire()
		if err != nil {
			s.queued = time.Since(s.began)
			if reply != nil || failure != nil {
				return reply, failure
			}
			return nil, err
		}
		if reply != nil {
			_ = reply.Body.Close()
		}
		var out result
		reply, out, failure = s.try(l)
		if !s.again(l, out) {
			return reply, failure
		}
		l.end()                         // the rest of the response may be long, and the request must not wait for itself
		if out.outcome != rateLimited { // its account cools down, and may be the first to have room again
			s.tried = append(s.tried, l.endpoint)
		}
	}
}

// acquire charges an endpoint for the request, and waits in line if none has room.
func (s *sending) acquire() (*lease, error) {
	if err := context.Cause(s.ctx); err != nil {
		return nil, err
	}
	p, set := s.pool, s.pool.set.Load()
	if !p.lines.busy(set, s.call, s.tried) {
		candidates := set.choose(s.call, time.Now(), s.tried)
		l, _, err := s.tryAll(candidates, time.Time{})
		if l == nil && err == nil && len(candidates) == maxCandidates {
			l, _, err = s.tryAll(set.eligible(s.call, slices.Concat(s.tried, candidates)), time.Time{})
		}
		if l != nil || err != nil {
			return l, err
		}
	}
	l, err := s.wait()
	if l != nil {
		l.endpoint.memory.stats.waited.Add(1)
		p.waited.Add(1)
	}
	return l, err
}

// maxSends is how often a request is sent at most.
const maxSends = 3

// again reports whether the request is to be sent once more, after it has failed.
func (s *sending) again(l *lease, out result) bool {
	switch {
	case out.outcome == succeeded || out.outcome == cancelled || s.ctx.Err() != nil || len(s.tried) >= maxCandidates-1 || s.sent >= maxSends:
		return false
	case out.outcome == notSent:
		return true
	case !s.call.Repeatable || s.call.Pinned != "":
		return false
	}
	return s.pool.retries.take()
}
