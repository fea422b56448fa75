package weirhttp

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// Limit returns middleware that lets a request pass if it fits the limits of all rules, and
// otherwise refuses it with status 429 and a problem body, without calling the handler and
// without reading the request's body:
//
//	limit := weirhttp.Limit(table,
//		weirhttp.By(perKey, weirhttp.Header("X-Api-Key")),
//		weirhttp.By(perIP, weirhttp.ClientIP(proxies...)))
//	http.ListenAndServe(addr, limit(mux))
//
// Several rules are charged in one call, all or none: what one rule refuses is not charged to
// the others.
//
// Responses have the fields of SetHeaders, which are set before the handler is called.
// RateLimit-Policy lists the limits of all rules, and RateLimit has the one with the least
// remaining or, on a refusal, the one that refused. A Limit inside of another one
// replaces its fields. The limits are those of the policies as given to By: after
// weir.Limiter.Set, make a new Limit.
//
// The handler gets the http.ResponseWriter as it came, so flushing, hijacking and
// http.ResponseController work as without Limit.
//
// Where CORS is in use, that is, if the request has an Origin, the fields are added to
// Access-Control-Expose-Headers. Put middleware that handles CORS outside of Limit: browsers
// can then read refusals, too, and what it sets in Access-Control-Expose-Headers is kept. A
// handler inside should Add to that field, because Set removes what is there.
//
// Limit panics if an option is invalid, as http.ServeMux does, since options are constants
// of the program.
func Limit(l weir.Limiter, options ...Option) func(http.Handler) http.Handler {
	if l == nil {
		panic("weirhttp: Limit: the limiter is nil")
	}
	var c config
	for _, o := range options {
		o(&c)
	}
	c.check()
	m := &middleware{config: c, limiter: l, expose: []string{exposed(c.legacy)}}
	m.quotas = m.config.quotas()
	m.batches.New = func() any { return m.newBatch() }
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if m.free(r) || m.admit(w, r) {
				next.ServeHTTP(w, r)
			}
		})
	}
}

// middleware is what Limit has made of its options. Its fields are set once.
type middleware struct {
	config
	limiter weir.Limiter
	quotas  Quotas    // of all rules, one after the other
	expose  []string  // the value of Access-Control-Expose-Headers; without room
	batches sync.Pool // of *weir.Batch, for several rules
}

// keyBlock is the memory of one request under one rule, and keysBlock that under several:
// first the keys and then the values of the header fields are appended to text. See fields
// for why strings may share it. Keys and names for which it is too small cost another
// allocation.
type (
	keyBlock struct {
		values [2]string
		text   [96]byte // for example an API key of 64 bytes, and "per-key";r=99
	}
	keysBlock struct {
		values [2]string
		text   [160]byte // that, an IPv6 network and longer names
	}
)

// newBlock returns the memory of one request.
func (m *middleware) newBlock() (values []string, text []byte) {
	if len(m.rules) == 1 {
		b := new(keyBlock)
		return b.values[:], b.text[:0]
	}
	b := new(keysBlock)
	return b.values[:], b.text[:0]
}

// outcome is what the limiter said of a request.
type outcome struct {
	rule     *rule // the one that refused, or the tightest
	decision weir.Decision
	violated []string // the names of all visible limits that refused
}

// admit says whether a request may pass, and replies to it if not.
func (m *middleware) admit(w http.ResponseWriter, r *http.Request) bool {
	values, text := m.newBlock()
	o, text, err := m.take(r, text)
	if err != nil {
		return m.failed(w, r, err)
	}
	h := w.Header()
	m.setHeaders(h, o, values, text)
	if len(r.Header["Origin"]) > 0 {
		m.exposeTo(h)
	}
	if o.decision.Allowed {
		return true
	}
	m.reply(w, r, Denial{Problem: o.problem(), Policy: o.rule.policy, Hidden: o.rule.hidden, Decision: o.decision})
	return false
}

// take charges a request. The text is returned with the keys appended.
func (m *middleware) take(r *http.Request, text []byte) (outcome, []byte, error) {
	cost := int64(1)
	if m.cost != nil {
		cost = m.cost(r)
	}
	if len(m.rules) > 1 {
		return m.takeAll(r, text, cost)
	}
	rule := &m.rules[0]
	text, key := appendKey(text, rule.key, r)
	d, err := m.limiter.Take(r.Context(), rule.policy, key, cost)
	if err != nil {
		return outcome{}, text, err
	}
	o := outcome{rule: rule, decision: d}
	if !d.Allowed {
		o.violated = rule.appendViolated(nil, d)
	}
	return o, text, nil
}

// takeAll is take for several rules. Batches are used again, which the limiter allows once
// Do has returned; keys are not.
func (m *middleware) takeAll(r *http.Request, text []byte, cost int64) (outcome, []byte, error) {
	b := m.batches.Get().(*weir.Batch)
	for i := range m.rules {
		c := &b.Charges[i]
		text, c.Key = appendKey(text, m.rules[i].key, r)
		c.Cost = cost
	}
	err := m.limiter.Do(r.Context(), b)
	var o outcome
	if err == nil {
		o = m.outcomeOf(b.Decisions)
	}
	for i := range b.Charges {
		b.Charges[i].Key = "" // so that the pool keeps no request's memory
	}
	m.batches.Put(b)
	return o, text, err
}

func (m *middleware) newBatch() *weir.Batch {
	b := &weir.Batch{Op: weir.TakeAll, Charges: make([]weir.Charge, len(m.rules)), Decisions: make([]weir.Decision, len(m.rules))}
	for i := range m.rules {
		b.Charges[i].Policy = m.rules[i].policy
	}
	return b
}

// outcomeOf finds the rule that clients are told of: of those that refused, the one with
// the longest wait; if none did, the visible one with the least remaining and, of several,
// the one that resets last.
func (m *middleware) outcomeOf(decisions []weir.Decision) outcome {
	at := -1
	var violated []string
	for i := range decisions {
		d := &decisions[i]
		switch {
		case d.Allowed || d.Reason == weir.NotCharged:
			continue
		case at < 0 || d.RetryAfter > decisions[at].RetryAfter:
			at = i
		}
		violated = m.rules[i].appendViolated(violated, *d)
	}
	if at < 0 {
		at = m.tightest(decisions)
	}
	return outcome{&m.rules[at], decisions[at], violated}
}

// tightest returns the index of the visible decision with the least remaining, 0 if none
// is visible.
func (m *middleware) tightest(decisions []weir.Decision) int {
	at := -1
	for i := range decisions {
		if m.rules[i].hidden || !counted(decisions[i]) {
			continue
		}
		if at < 0 || tighter(&decisions[i], &decisions[at]) {
			at = i
		}
	}
	return max(at, 0)
}

func tighter(a, b *weir.Decision) bool {
	if a.Remaining != b.Remaining {
		return a.Remaining < b.Remaining
	}
	return a.ResetAfter > b.ResetAfter
}

// appendViolated appends the name of the limit that refused, unless it is hidden.
func (r *rule) appendViolated(names []string, d weir.Decision) []string {
	if r.hidden {
		return names
	}
	return append(names, r.limitName(d))
}

// limitName returns the name of the limit that a decision is about. One that is not of the
// rule's policy is of a policy that Limiter.Set has put in its place.
func (r *rule) limitName(d weir.Decision) string {
	if int(d.By) >= r.limits {
		return r.policy.Name()
	}
	return r.policy.LimitName(int(d.By))
}

// quota returns the index of that limit among the quotas of all rules, -1 if it is not there.
func (r *rule) quota(d weir.Decision) int {
	if int(d.By) >= r.limits {
		return -1
	}
	return r.first + int(d.By)
}

// setHeaders sets the fields of an outcome. Their values are appended to text.
func (m *middleware) setHeaders(h http.Header, o outcome, values []string, text []byte) {
	var f fields
	from := len(text)
	text = f.decision(h, text, m.quotas, o.rule.quota(o.decision), o.decision)
	f.put(h, values, text, from)
	if m.legacy.known() && !o.rule.hidden {
		m.legacy.Set(h, o.decision, time.Now())
	}
}

// problem returns the default reply to a refusal. That of a hidden rule says only when to
// retry.
func (o outcome) problem() Problem {
	if o.rule.hidden {
		p := Denied("", "", o.decision)
		p.Detail, p.Violated = advice(o.decision), nil
		return p
	}
	p := Denied(o.rule.policy.Name(), o.rule.limitName(o.decision), o.decision)
	if p.Violated != nil {
		p.Violated = o.violated
	}
	return p
}

// failed decides what happens to a request that the limiter could not decide on.
func (m *middleware) failed(w http.ResponseWriter, r *http.Request, err error) (pass bool) {
	if m.onError != nil && m.onError(r, err) {
		return true
	}
	m.reply(w, r, undecided(err))
	return false
}

// undecided is the refusal of a request because of the limiter's error.
func undecided(err error) Denial {
	return Denial{Err: err, Problem: Problem{
		Type: TypeReducedCapacity, Status: http.StatusServiceUnavailable, Title: "Temporary reduced capacity",
		Detail: "the limits of this request cannot be checked at the moment; retry later",
	}}
}

func (m *middleware) reply(w http.ResponseWriter, r *http.Request, d Denial) {
	w.Header().Set("Cache-Control", "no-store")
	if m.refuse != nil {
		m.refuse(w, r, d)
		return
	}
	d.Problem.Write(w)
}

// free says whether a request is not charged.
func (m *middleware) free(r *http.Request) bool {
	return !m.chargeAll && (isPreflight(r) || isProbe(r)) || m.skip != nil && m.skip(r)
}

// isPreflight says whether a browser asks if it may send a request to another origin.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && len(r.Header["Origin"]) > 0 && len(r.Header["Access-Control-Request-Method"]) > 0
}

// isProbe says whether a request is a health probe of an orchestrator or a load balancer.
func isProbe(r *http.Request) bool {
	if strings.HasPrefix(r.URL.Path, "/grpc.health.v1.Health/") {
		return true
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	switch r.URL.Path {
	case "/healthz", "/readyz", "/livez", "/health":
		return true
	}
	return false
}

const fieldExpose = "Access-Control-Expose-Headers"

// exposeTo adds the fields to those that scripts of other origins can read. A Limit outside
// of this one may have done so.
func (m *middleware) exposeTo(h http.Header) {
	switch before := h[fieldExpose]; {
	case len(before) == 0:
		h[fieldExpose] = m.expose
	case !slices.Contains(before, m.expose[0]):
		h[fieldExpose] = append(before[:len(before):len(before)], m.expose...)
	}
}

// exposed returns the names of the fields that Limit sets.
func exposed(l Legacy) string {
	const always = "RateLimit-Policy, RateLimit, Retry-After"
	const legacy = ", X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"
	switch l {
	case LegacyGitHub:
		return always + legacy + ", X-RateLimit-Used"
	case LegacyDelta:
		return always + legacy
	}
	return always
}
