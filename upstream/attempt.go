package upstream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"github.com/weirlimit/weir/budget"
)

// result is what a try says about the endpoint.
type result struct {
	outcome outcome
	refusal budget.Refusal // if the provider has refused
	reason  string         // if it has failed
}

var errTimeout = errors.New("upstream: the endpoint has not answered in time")

// An attempt is a request on its way to one endpoint.
type attempt struct {
	lease   *lease
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timeout time.Duration
	timer   *time.Timer // cancels it
	stop    func() bool // ends what closes the body with the context

	took  time.Duration // until the response began
	resp  *http.Response
	start []byte // of the response's body, if it was read
	whole bool   // start is all of it
}

// try sends the request to the endpoint of a lease.
func (s *sending) try(l *lease) (*Reply, result, error) {
	set := s.pool.set.Load()
	a := &attempt{lease: l, timeout: cmp.Or(s.timeout, set.config.Timeout), stop: func() bool { return true }}
	a.ctx, a.cancel = context.WithCancelCause(s.ctx)
	a.timer = time.AfterFunc(a.timeout, func() { a.cancel(errTimeout) })
	began := time.Now()
	err := a.send(set.transport, s.requestFor(a.ctx, l))
	if err == nil {
		err = s.read(a, set.config.JSONRPC)
	}
	if err != nil {
		a.timer.Stop()
		a.stop()
		out, failure := s.failed(a.ctx, l, err)
		a.cancel(nil)
		s.pool.react(l, out, a.took)
		l.end()
		return nil, out, failure
	}
	l.sentUnseen()
	s.countSent(began)
	s.pool.learn(s.ctx, l.endpoint, a.resp.Header)
	l.endpoint.redactHeader(a.resp)
	out := a.judge()
	s.pool.react(l, out, a.took)
	a.pass()
	return &Reply{
		Response: a.resp, Alias: l.endpoint.Alias, Limit: l.limit, Quota: l.quota, Unit: l.unit, Decision: l.decision,
		Queued: s.queued, Tries: s.sent,
	}, out, nil
}

// send has the transport send the request. The context closes the response's body, also if the transport ignores it.
func (a *attempt) send(transport http.RoundTripper, r *http.Request) (err error) {
	began := time.Now()
	returned := false
	defer func() {
		if !returned { // the transport panics
			a.cancel(nil)
			a.timer.Stop()
			a.lease.pool.react(a.lease, result{outcome: cancelled}, 0)
			a.lease.end()
		}
	}()
	a.resp, err = transport.RoundTrip(r)
	returned = true
	a.took = time.Since(began)
	switch {
	case err != nil:
		return err
	case a.resp.StatusCode < 200: // 101: the body is the connection, which the context does not interrupt
		_ = a.resp.Body.Close()
		return errSwitched
	}
	body := a.resp.Body
	a.stop = context.AfterFunc(a.ctx, func() { _ = body.Close() })
	return nil
}

// read reads as much of the response as is needed to judge it, before the timeout.
func (s *sending) read(a *attempt, jsonRPC bool) (err error) {
	if a.resp.StatusCode >= 400 || jsonRPC {
		a.start, a.whole, err = peek(a.resp, s.mostPeek())
	}
	if err == nil && jsonRPC && a.resp.StatusCode < 300 && !s.isAnswer(a.start, a.whole) {
		err = errNotJSON
	}
	if !a.timer.Stop() && err == nil && !a.whole {
		_ = a.resp.Body.Close()
		err = errTimeout
	}
	return err
}

// pass makes the response that of the caller. The call is in flight until the body has ended.
func (a *attempt) pass() {
	if !a.whole {
		a.resp.Body = &ending{a.resp.Body, a.lease, a.timer, a.timeout, a.stop, a.cancel}
		return
	}
	a.stop()
	a.cancel(nil)
	a.lease.endpoint.redactBody(a.resp, a.start)
	a.lease.end()
}

// requestFor returns the request as an endpoint gets it.
func (s *sending) requestFor(ctx context.Context, l *lease) *http.Request {
	e := l.endpoint
	r := s.request.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { l.connecting() },
		WroteHeaders: l.wrote,
	}))
	r.URL, r.Host, r.RequestURI = joined(e.url, s.request.URL), "", ""
	if r.Header = maps.Clone(s.request.Header); r.Header == nil {
		r.Header = http.Header{}
	}
	for name, values := range e.header {
		r.Header[name] = values
	}
	if !s.call.Repeatable {
		withoutReplay(r.Header)
	}
	if s.body != nil {
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(s.body)), int64(len(s.body)), nil
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(s.body)), nil }
	} else {
		r.Body, r.ContentLength = http.NoBody, 0
	}
	return r
}

// withoutReplay keeps net/http from sending a request again by itself after a connection is lost, as it does with those
// that have an Idempotency-Key. It looks for the canonical name only; to endpoints the case makes no difference.
func withoutReplay(h http.Header) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := h[name]; ok {
			delete(h, name)
			h[strings.ToLower(name)] = values
		}
	}
}

// joined returns an endpoint's URL with the path and the query of a request added.
func joined(base, request *url.URL) *url.URL {
	u := *base
	if path := strings.TrimPrefix(request.Path, "/"); path != "" {
		u = *u.JoinPath(strings.Split(path, "/")...)
	}
	switch {
	case u.RawQuery == "":
		u.RawQuery = request.RawQuery
	case request.RawQuery != "":
		u.RawQuery += "&" + request.RawQuery
	}
	return &u
}

// failed returns the error of a try that got no response, and what it says.
func (s *sending) failed(ctx context.Context, l *lease, err error) (result, error) {
	unsent := l.unsent()
	timeout := context.Cause(ctx) == errTimeout || err == errTimeout
	if !unsent {
		l.sentUnseen()
		s.countSent(time.Now())
	}
	if s.ctx.Err() != nil {
		return result{outcome: cancelled}, context.Cause(s.ctx)
	}
	e := &TryError{Alias: l.endpoint.Alias, Reason: reasonOf(err), Sent: !unsent, Timeout: timeout}
	switch {
	case unsent:
		return result{outcome: notSent, reason: e.Reason}, e
	case timeout:
		e.Reason = "timeout"
		return result{outcome: timedOut, reason: e.Reason}, e
	}
	return result{outcome: failed, reason: e.Reason}, e
}

// countSent counts that the request was sent. Its time in the queue has ended, unless it is sent again.
func (s *sending) countSent(at time.Time) {
	if s.sent++; s.sent > 1 {
		s.pool.retried.Add(1)
	}
	s.queued = at.Sub(s.began)
}
