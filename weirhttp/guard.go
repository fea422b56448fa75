package weirhttp

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/ruleset"
)

// Guard returns middleware that lets a request pass if both stages of a guard.Guard admit it:
// blocks, requests in flight and limits of the address, and then the limits of the endpoint for
// the subject. The endpoint is the method and guard.RequestPath, the subject is what the Guard's
// Identifier finds.
//
//	http.ListenAndServe(addr, weirhttp.Guard(g)(mux))
//
// Authentication that the program does itself belongs between the stages: use Stages. If it is
// outside of Guard, its guard.WithSubject counts as well, but then nothing limits the requests
// that it has to verify.
//
// A request that is refused does not reach the handler, and its body is not read. The reply is a
// problem:
//
//	429  a limit is used up (TypeQuotaExceeded, or TypeAbnormalUsage while the subject has a
//	     penalty), or too many requests of the subject or the address are in flight
//	403  the subject or the address is blocked (TypeBlocked)
//	503  the process handles too many requests (TypeReducedCapacity), or the limiter failed
//	400  the path has a dot segment
//
// Responses have the fields of SetHeaders for the limits of the endpoint, which are set before
// the handler is called. Limits before authentication, hidden limits, limits in shadow and those
// of subjects that the rollout does not include are never shown: of a refusal by a hidden limit,
// clients see when to retry. CORS and what is free are as for Limit.
//
// # Dot segments
//
// A path with a segment . or .. that is not percent-encoded is refused with 400, unless
// Config.Mode of the Guard is Shadow or Off. Browsers never send one. Routers disagree about such
// paths: http.ServeMux redirects to the path without them, chi, echo and gin take them for names,
// and so a request could be handled by another endpoint than the one that it is counted at.
//
// # Counting by outcome
//
// At endpoints with guard.CountFailures, and at no others, the handler gets an
// http.ResponseWriter that observes the status; it has Flush and, for http.ResponseController,
// Unwrap. See Failed for what a failure is. At endpoints with Settle, the handler may call
// guard.Settle with the request's context.
//
// Guard panics if an option is invalid.
func Guard(g *guard.Guard, options ...Option) func(http.Handler) http.Handler {
	m := newGuarded("Guard", g, options)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.both(w, r, next) })
	}
}

// Stages returns the two halves of Guard, for programs that authenticate their callers
// themselves: before limits the requests that have to be authenticated, and after charges the
// subject that authentication has found, which is in the context (guard.WithSubject).
//
//	before, after := weirhttp.Stages(g)
//	http.ListenAndServe(addr, before(authenticate(after(mux))))
//
// A request that comes to after without before passes through both stages there. What
// authentication refuses is not charged at the endpoint.
func Stages(g *guard.Guard, options ...Option) (before, after func(http.Handler) http.Handler) {
	m := newGuarded("Stages", g, options)
	before = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.before(w, r, next) })
	}
	after = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.after(w, r, next) })
	}
	return before, after
}

// Messages returns a function that charges a message of a stream, such as a WebSocket, to the
// endpoint of the request that has opened the stream. It returns false and why if the message is
// refused. Guard or Stages has admitted the request before, at the cost of one message:
//
//	charge := weirhttp.Messages(g)
//	…
//	for { // in the handler
//		message := read(connection)
//		if denial, ok := charge(r); !ok {
//			return closeWith(connection, denial.Problem.Detail)
//		}
//
// The subject is found for each message anew: where that takes long, as for tokens, put it into the
// request's context (guard.WithSubject). Options are as for Guard, of which Refuse and Failed have
// no effect.
func Messages(g *guard.Guard, options ...Option) func(r *http.Request) (denial Denial, ok bool) {
	m := newGuarded("Messages", g, options)
	return func(r *http.Request) (Denial, bool) {
		if m.free(r) {
			return Denial{}, true
		}
		v := m.visits.Get().(*visit)
		defer m.visits.Put(v)
		ctx := r.Context()
		s := g.Identifier().Verified(ctx, credentials(r))
		verdict, err := g.Charge(ctx, &v.pass, m.request(r, guard.RequestPath(r.URL)), s)
		switch {
		case err != nil && m.onError != nil && m.onError(r, err):
			return Denial{}, true
		case err != nil:
			return undecided(err), false
		case !verdict.Allowed:
			return deniedBy(&verdict), false
		}
		return Denial{}, true
	}
}

// Attributes sets what limits may be by, beside the subject and "ip": see guard.Endpoint.Limits.
// It is an option of Guard and Stages.
func Attributes(f func(*http.Request) []ruleset.Attribute) Option {
	return func(c *config) { c.attributes = f }
}

// Failed says which responses are failures at endpoints with guard.CountFailures. The default is
// 401 and 403. A panic of the handler is always a failure, and so is a request that the client
// has left before there was a status. It is an option of Guard and Stages.
func Failed(f func(r *http.Request, status int) bool) Option {
	return func(c *config) { c.isFailure = f }
}

// guarded is what Guard and Stages have made of their options. Its fields are set once.
type guarded struct {
	middleware
	guard  *guard.Guard
	visits sync.Pool // of *visit
}

func newGuarded(name string, g *guard.Guard, options []Option) *guarded {
	if g == nil {
		panic("weirhttp: " + name + ": the guard is nil")
	}
	var c config
	for _, o := range options {
		o(&c)
	}
	if len(c.rules) > 0 {
		panic("weirhttp: " + name + ": By is an option of Limit; a Guard has the limits of its guard.Config")
	}
	if c.isFailure == nil {
		c.isFailure = isFailure
	}
	m := &guarded{guard: g, middleware: middleware{config: c, expose: []string{exposed(c.legacy)}}}
	m.visits.New = func() any { return new(visit) }
	return m
}

// isFailure is the default of Failed.
func isFailure(_ *http.Request, status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// visit is a request on its way through a Guard. Between the stages there may be handlers with
// goroutines of their own, such as http.TimeoutHandler, so that the first stage may end while
// the second is under way.
type visit struct {
	mu    sync.Mutex // guards pass, but for guard.Settle
	pass  guard.Pass
	ended bool // there is nothing left to decide: free, identified, or the limiter failed
}

// visitKey is the context's key of the visit of a Stages.
type visitKey struct{ m *guarded }

// both runs both stages around a handler.
func (m *guarded) both(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if m.free(r) {
		next.ServeHTTP(w, r)
		return
	}
	v := m.visits.Get().(*visit)
	switch entered, pass := m.enter(w, r, v); {
	case entered:
		if kept := m.inside(w, r, v, next); kept {
			return
		}
	case pass:
		next.ServeHTTP(w, r)
	}
	m.visits.Put(v)
}

func (m *guarded) before(w http.ResponseWriter, r *http.Request, next http.Handler) {
	v := &visit{ended: true}
	if !m.free(r) {
		entered, pass := m.enter(w, r, v)
		if !pass {
			return
		}
		v.ended = !entered
	}
	ctx := r.Context()
	defer v.done(ctx, true) // if after was reached, it has done so already
	next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, visitKey{m}, v)))
}

func (m *guarded) after(w http.ResponseWriter, r *http.Request, next http.Handler) {
	v, _ := r.Context().Value(visitKey{m}).(*visit)
	switch {
	case v == nil:
		m.both(w, r, next)
	case v.claim():
		m.inside(w, r, v, next)
	default:
		next.ServeHTTP(w, r)
	}
}

// claim says whether the stage after authentication is to be run. It returns true once.
func (v *visit) claim() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	first := !v.ended
	v.ended = true
	return first
}

func (v *visit) done(ctx context.Context, failed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pass.Done(ctx, failed)
}

// enter is the stage before authentication. A request that was not entered may pass if the
// limiter failed and OnError says so; otherwise it has its reply.
func (m *guarded) enter(w http.ResponseWriter, r *http.Request, v *visit) (entered, pass bool) {
	path := guard.RequestPath(r.URL)
	if hasDotSegment(path) && m.guard.Mode() == ruleset.Enforce {
		m.reply(w, r, Denial{Problem: Problem{
			Type: TypeBlank, Status: http.StatusBadRequest, Title: http.StatusText(http.StatusBadRequest),
			Detail: "the path has a segment . or ..; send the path without it",
		}})
		return false, false
	}
	verdict, err := m.guard.Enter(r.Context(), &v.pass, m.request(r, path))
	if err != nil {
		return false, m.failed(w, r, err)
	}
	if !verdict.Allowed {
		m.refuseBy(w, r, &verdict)
		return false, false
	}
	return true, true
}

// request returns what is charged.
func (m *guarded) request(r *http.Request, path string) guard.Request {
	request := guard.Request{Method: r.Method, Path: path, Address: m.guard.Identifier().Address(credentials(r))}
	if m.cost != nil {
		request.Cost = m.cost(r)
	}
	if m.attributes != nil {
		request.Attributes = m.attributes(r)
	}
	return request
}

// hasDotSegment says whether a segment of a path is . or ..
func hasDotSegment(path string) bool {
	for {
		i := strings.Index(path, "/.")
		if i < 0 {
			return false
		}
		path = path[i+2:]
		rest := strings.TrimPrefix(path, ".")
		if rest == "" || rest[0] == '/' {
			return true
		}
	}
}

func credentials(r *http.Request) *guard.Credentials {
	return &guard.Credentials{RemoteAddr: r.RemoteAddr, Header: r.Header, TLS: r.TLS}
}

// inside is the stage after authentication, the handler, and the end of the request. It returns
// whether the handler may still have the visit.
func (m *guarded) inside(w http.ResponseWriter, r *http.Request, v *visit, next http.Handler) (kept bool) {
	ctx, failed := r.Context(), true // until the handler has returned
	defer func() { v.done(ctx, failed) }()
	pass, counts, settles := m.identify(w, r, v)
	if !pass {
		return false
	}
	if settles {
		r = r.WithContext(guard.WithPass(ctx, &v.pass))
	}
	if !counts {
		next.ServeHTTP(w, r)
		return settles
	}
	s := &statusWriter{ResponseWriter: w}
	next.ServeHTTP(s, r)
	failed = m.hasFailed(r, s.status)
	return settles
}

// identify charges the endpoint. It returns whether the request may pass, whether its outcome
// counts, and whether the handler may set its cost.
func (m *guarded) identify(w http.ResponseWriter, r *http.Request, v *visit) (pass, counts, settles bool) {
	ctx := r.Context()
	s := m.guard.Identifier().Verified(ctx, credentials(r))
	v.mu.Lock()
	verdict, err := m.guard.Identify(ctx, &v.pass, s)
	counts, settles = v.pass.CountsFailures(), v.pass.Settles()
	v.mu.Unlock()
	switch {
	case err != nil:
		pass = m.failed(w, r, err)
	case verdict.Allowed:
		m.setFields(w.Header(), r, &verdict)
		pass = true
	default:
		m.refuseBy(w, r, &verdict)
	}
	return pass, counts, settles
}

// hasFailed says whether a handler that returned has failed. A status of 0 is none: net/http
// sends 200 then, if there still is a client.
func (m *guarded) hasFailed(r *http.Request, status int) bool {
	if status == 0 {
		if r.Context().Err() != nil {
			return true
		}
		status = http.StatusOK
	}
	return m.isFailure(r, status)
}

// setFields sets the fields of a verdict, and lets scripts of other origins read them, if there are
// any: limits in shadow must not show.
func (m *guarded) setFields(h http.Header, r *http.Request, v *guard.Verdict) {
	quotas := visible(v)
	SetHeaders(h, quotas, v.Limit, v.Decision)
	if m.legacy.known() && quotas.Shows(v.Limit) {
		m.legacy.Set(h, v.Decision, time.Now())
	}
	if len(r.Header["Origin"]) > 0 && (quotas.policy != nil || !v.Allowed) {
		m.exposeTo(h)
	}
}

// visible returns the quotas that clients may see. Without an index the limits are not enforced
// for the subject, or there are none.
func visible(v *guard.Verdict) Quotas {
	if v.Variant == nil || v.Limit < 0 {
		return Quotas{}
	}
	return VariantQuotas(v.Variant)
}

// refuseBy replies to a request that was refused.
func (m *guarded) refuseBy(w http.ResponseWriter, r *http.Request, v *guard.Verdict) {
	m.setFields(w.Header(), r, v)
	m.reply(w, r, deniedBy(v))
}

func deniedBy(v *guard.Verdict) Denial {
	return Denial{Problem: GuardDenied(v), Hidden: v.Cause == guard.ByLimit && !visible(v).Shows(v.Limit), Decision: v.Decision, Verdict: *v}
}

// GuardDenied returns the problem of a refusal of a guard.Guard. It does not name hidden limits.
func GuardDenied(v *guard.Verdict) Problem {
	switch v.Cause {
	case guard.ByBlock:
		return Problem{Type: TypeBlocked, Status: http.StatusForbidden, Title: "Blocked", Detail: "this caller is blocked; " + advice(v.Decision)}
	case guard.ByOverload:
		return Problem{
			Type: TypeReducedCapacity, Status: http.StatusServiceUnavailable, Title: "Temporary reduced capacity",
			Detail: "too many requests are being handled; " + advice(v.Decision),
		}
	case guard.ByInFlight:
		return Problem{
			Type: TypeQuotaExceeded, Status: http.StatusTooManyRequests, Title: "Quota exceeded",
			Detail: "too many requests of this caller are being handled; " + advice(v.Decision),
		}
	}
	p := Denied("", "", v.Decision)
	if visible(v).Shows(v.Limit) {
		p = Denied(v.Policy(), v.LimitedBy(), v.Decision)
	} else {
		p.Detail = "there were too many requests of this caller; " + advice(v.Decision)
	}
	if v.Penalized && p.Type == TypeQuotaExceeded {
		p.Type, p.Title = TypeAbnormalUsage, "Abnormal usage detected"
	}
	return p
}

// statusWriter observes the status of a response.
type statusWriter struct {
	http.ResponseWriter
	status int // 0 until there is one
}

// WriteHeader keeps the first status that is not informational: others net/http ignores.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= 200 || status == http.StatusSwitchingProtocols {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	w.implicit()
	return w.ResponseWriter.Write(b)
}

// Flush is for handlers that expect an http.Flusher. Like http.ResponseController, it does nothing
// if there is none.
func (w *statusWriter) Flush() {
	w.implicit()
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *statusWriter) implicit() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
