package upstream

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/budget"
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

// result is what a try says about the endpoint.
type result struct {
	outcome outcome
	refusal budget.Refusal // if the provider has refused
	reason  string         // if it has failed
}

var errTimeout = errors.New("upstream: the endpoint has not answered in time")

// try sends the request to the endpoint of a lease.
func (s *sending) try(l *lease) (*Reply, result, error) {
	set := s.pool.set.Load()
	ctx, cancel := context.WithCancelCause(s.ctx)
	timeout := cmp.Or(s.timeout, set.config.Timeout)
	timer := time.AfterFunc(timeout, func() { cancel(errTimeout) })
	began := time.Now()
	returned := false
	defer func() {
		if !returned { // the transport panics
			cancel(nil)
			timer.Stop()
			s.pool.react(l, result{outcome: cancelled}, 0)
			l.end()
		}
	}()
	resp, err := set.transport.RoundTrip(s.requestFor(ctx, l))
	returned = true
	took := time.Since(began)
	var start []byte
	whole := false
	stopClosing := func() bool { return true }
	switch {
	case err != nil:
	case resp.StatusCode < 200: // 101: the body is the connection, which the context does not interrupt
		_ = resp.Body.Close()
		err = errSwitched
	default:
		body := resp.Body
		stopClosing = context.AfterFunc(ctx, func() { _ = body.Close() }) // also where the transport ignores its context
	}
	if err == nil && (resp.StatusCode >= 400 || set.config.JSONRPC) {
		start, whole, err = peek(resp, s.mostPeek())
	}
	if err == nil && set.config.JSONRPC && resp.StatusCode < 300 && !s.isAnswer(start, whole) {
		err = errNotJSON
	}
	if !timer.Stop() && err == nil && !whole {
		_ = resp.Body.Close()
		err = errTimeout
	}
	if err != nil {
		stopClosing()
		out, failure := s.failed(ctx, l, err)
		cancel(nil)
		s.pool.react(l, out, took)
		l.end()
		return nil, out, failure
	}
	l.sentUnseen()
	s.countSent(began)
	s.pool.learn(s.ctx, l.endpoint, resp.Header)
	l.endpoint.redactHeader(resp)
	if !whole {
		start = nil
	}
	out := judge(resp, start)
	s.pool.react(l, out, took)
	if whole {
		stopClosing()
		cancel(nil)
		l.endpoint.redactBody(resp, start)
		l.end()
	} else {
		resp.Body = &ending{resp.Body, l, timer, timeout, stopClosing, cancel}
	}
	return &Reply{
		Response: resp, Alias: l.endpoint.Alias, Limit: l.limit, Quota: l.quota, Unit: l.unit, Decision: l.decision,
		Queued: s.queued, Tries: s.sent,
	}, out, nil
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

// How much of a response is read to find a refusal in it, or what is no answer. Errors are short, but the answer to a batch
// has the others, too.
const (
	maxPeek      = 64 << 10
	maxPeekBatch = 1 << 20
	startPeek    = 512 // of one that is longer for sure
)

func (s *sending) mostPeek() int64 {
	if len(s.call.Methods) > 1 {
		return maxPeekBatch
	}
	return maxPeek
}

// judge returns what a response says. Start is all of its body, nil if that is not known.
func judge(resp *http.Response, start []byte) result {
	if resp.StatusCode < 300 && !bytes.Contains(start, []byte(`"error"`)) {
		return result{}
	}
	if r, refused := budget.Classify(resp.StatusCode, resp.Header, start, time.Now()); refused {
		return result{outcome: outcomeOf(r.Class), refusal: r, reason: r.Class.String() + " (" + r.Reason + ")"}
	}
	if resp.StatusCode >= 500 || resp.StatusCode >= 300 && resp.StatusCode < 400 { // redirects are not followed
		return result{outcome: failed, reason: fmt.Sprintf("status %d", resp.StatusCode)}
	}
	return result{}
}

// peek reads the beginning of a response's body, up to most bytes, and puts it back. Whole is whether that is all.
func peek(resp *http.Response, most int64) (start []byte, whole bool, err error) {
	if resp.ContentLength > most {
		start = make([]byte, startPeek)
		n, err := io.ReadAtLeast(resp.Body, start, 1)
		if err != nil {
			_ = resp.Body.Close()
			return nil, false, err
		}
		start = start[:n]
	} else {
		buf := bytes.NewBuffer(make([]byte, 0, max(bytes.MinRead, resp.ContentLength+bytes.MinRead)))
		if _, err = buf.ReadFrom(io.LimitReader(resp.Body, most+1)); err != nil {
			_ = resp.Body.Close()
			return nil, false, err
		}
		if start = buf.Bytes(); int64(len(start)) <= most {
			_ = resp.Body.Close()
			setBody(resp, start)
			return start, true, nil
		}
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start), resp.Body), resp.Body}
	return start, false, nil
}

// errNotJSON is about the answer of an endpoint that is no JSON-RPC: it may be a page that asks for a login.
var errNotJSON = errors.New("upstream: the answer is not JSON")

// errSwitched is about an endpoint that has switched to another protocol, which nobody has asked for.
var errSwitched = errors.New("upstream: status 101")

// isAnswer reports whether a body, or its beginning, can be the answer of an endpoint of JSON-RPC.
func (s *sending) isAnswer(start []byte, whole bool) bool {
	text := bytes.TrimLeft(start, " \t\r\n")
	switch {
	case len(text) == 0:
		return s.call.NoAnswer || !whole
	case text[0] != '{' && text[0] != '[':
		return false
	}
	return !whole || json.Valid(start)
}

// setBody replaces the body of a response.
func setBody(resp *http.Response, body []byte) {
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if resp.ContentLength = int64(len(body)); resp.Header.Get("Content-Length") != "" {
		resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	}
}

// ending is the body of a response that is being received. Its errors have nothing secret in them, and it ends if the
// endpoint sends nothing for the timeout. The call is in flight until its end.
type ending struct {
	io.ReadCloser
	lease   *lease
	timer   *time.Timer // cancels the request
	timeout time.Duration
	stop    func() bool // ends what closes the body with the request's context
	cancel  context.CancelCauseFunc
}

func (e *ending) Read(p []byte) (int, error) {
	e.timer.Reset(e.timeout)
	n, err := e.ReadCloser.Read(p)
	late := !e.timer.Stop()
	if err != nil {
		e.lease.end()
	}
	if err != nil && err != io.EOF {
		failure := &TryError{Alias: e.lease.endpoint.Alias, Reason: reasonOf(err), Sent: true}
		if late {
			failure.Reason, failure.Timeout = "timeout", true
		}
		err = failure
	}
	return n, err
}

func (e *ending) Close() error {
	defer e.lease.end()
	defer e.cancel(nil)
	e.stop()
	return e.ReadCloser.Close()
}

func outcomeOf(c budget.RefusalClass) outcome {
	switch c {
	case budget.RateLimited:
		return rateLimited
	case budget.QuotaExhausted:
		return quotaExhausted
	case budget.AccessDenied:
		return accessDenied
	}
	return overloaded
}

// react passes what a try says to whom it is about. It does not end the lease: the response may still be on its way.
func (p *Pool) react(l *lease, out result, took time.Duration) {
	e, now := l.endpoint, time.Now()
	m := e.memory
	if l.isHalf() {
		defer p.lines.wake()
	}
	if out.outcome == notSent {
		m.stats.unsent.Add(1)
		l.settle(false)
	}
	switch out.outcome {
	case cancelled:
		l.settle(!l.unsent())
		m.gate.leave(l.passes[0])
		e.quota.gate.leave(l.passes[1])
		e.group.leave(l.passes[2])
		return
	case succeeded:
		m.measured(took)
		m.answers()
		opened := false
		for i, g := range e.gates() {
			opened = g.succeed(l.passes[i]) || opened
		}
		p.opened(e, opened)
		p.answered(e)
		return
	}
	m.stats.failures[out.outcome].Add(1)
	p.blame(l, out, now)
}

// blame closes the gate of what a failure is about. The others learn nothing from it.
func (p *Pool) blame(l *lease, out result, now time.Time) {
	e, closed := l.endpoint, false
	blamed := 0
	switch out.outcome {
	case rateLimited, quotaExhausted:
		blamed = 1
		cooldown := p.set.Load().config.Cooldown
		var pause time.Duration
		pause, closed = e.quota.gate.close(now, l.passes[1], out.refusal.Pause(), delays{base: cooldown}, out.reason)
		p.tell(e, out.refusal, pause)
	case overloaded:
		blamed = 2
		_, closed = e.group.close(now, l.passes[2], out.refusal.Pause(), delays{}, out.reason)
	case accessDenied:
		closed = p.denied(l, out, now)
		p.tell(e, out.refusal, 0)
	default:
		closed = p.failing(l, out, now)
	}
	for i, g := range e.gates() {
		if i != blamed {
			g.leave(l.passes[i])
		}
	}
	if !closed {
		return
	}
	log := p.set.Load().config.Logger
	log.Warn("upstream: an endpoint is out of use", "pool", p.name, "upstream", e.Alias, "reason", out.reason)
	if d := out.refusal.Pause(); d < out.refusal.Wait {
		log.Warn("upstream: the provider wants a longer pause than is plausible; it will be tried again before", "pool", p.name, "upstream", e.Alias, "wants", out.refusal.Wait, "pause", d)
	}
}

// tell passes a refusal to the endpoint's account, for what else is charged to it: it is counted, and the account
// pauses as long as the gate has been closed, which may be not at all.
func (p *Pool) tell(e *endpoint, r budget.Refusal, pause time.Duration) {
	if e.budget == nil {
		return
	}
	if c, err := e.budget.Controller(""); err == nil {
		if r.Wait = pause; pause == 0 {
			r.Wait = -1
		}
		c.RecordRefusal(r)
	}
}

// answered passes a success to the endpoint's account.
func (p *Pool) answered(e *endpoint) {
	if e.budget == nil {
		return
	}
	if c, err := e.budget.Controller(""); err == nil {
		c.RecordSuccess()
	}
}

// opened notes whether a call has opened gates of an endpoint. It is in use again when the last of them is open.
func (p *Pool) opened(e *endpoint, opened bool) {
	if !opened {
		return
	}
	p.lines.wake()
	for _, g := range e.gates() {
		if g.shut.Load() {
			return
		}
	}
	p.set.Load().config.Logger.Info("upstream: an endpoint is in use again", "pool", p.name, "upstream", e.Alias)
}

// down returns the error of a call that no endpoint can take because of failures, with the reasons.
func (p *Pool) down(c *Call) *DownError {
	e, now := &DownError{Unserved: true}, time.Now()
	for _, each := range p.set.Load().endpoints {
		if !each.takes(c) {
			continue
		}
		e.Unserved = false
		health, reason, cooldown := each.health(now)
		if health != "ok" {
			e.Reasons = append(e.Reasons, each.Alias+": "+reason)
		}
		if wait := time.Duration(cooldown) * time.Millisecond; wait > 0 && (e.RetryAfter == 0 || wait < e.RetryAfter) {
			e.RetryAfter = wait
		}
	}
	slices.Sort(e.Reasons)
	return e
}
