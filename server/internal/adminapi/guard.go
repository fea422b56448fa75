package adminapi

import (
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/storeapi"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
)

// defaultOffenders is how many are listed of the subjects that were refused most.
const defaultOffenders = 20

// guardAnswer is counts of the guard in this process since its start.
type guardAnswer struct {
	InFlight      int64                      `json:"in_flight"`
	Subjects      int64                      `json:"subjects"`
	Exempted      int64                      `json:"exempted"`
	Unsettled     int64                      `json:"unsettled"`
	Refused       map[string]int64           `json:"refused"`    // by cause
	Violations    map[string]violationsCount `json:"violations"` // by kind
	Endpoints     []endpointAnswer           `json:"endpoints"`
	Subscriptions subscriptionsAnswer        `json:"subscriptions"`
	Offenders     []offenderAnswer           `json:"offenders"`
	Suggestions   []suggestionAnswer         `json:"suggestions"`
}

type violationsCount struct {
	Enforced int64 `json:"enforced"`
	Shadow   int64 `json:"shadow"`
}

// endpointAnswer is counts of an endpoint. A request is in one of the first three.
type endpointAnswer struct {
	Name         string `json:"name"`
	Allowed      int64  `json:"allowed"`
	Denied       int64  `json:"denied"`
	ShadowDenied int64  `json:"shadow_denied"`
	Penalized    int64  `json:"penalized"` // denied while a penalty was in force
}

type subscriptionsAnswer struct {
	Open   int64            `json:"open"`
	Items  int64            `json:"items"`
	Denied map[string]int64 `json:"denied"` // by reason
}

// offenderAnswer is a subject that was refused often lately.
type offenderAnswer struct {
	Subject  string `json:"subject"`
	Refusals int64  `json:"refusals"` // an upper bound
}

// suggestionAnswer is the burst that an endpoint's callers needed.
type suggestionAnswer struct {
	Endpoint  string `json:"endpoint"`
	Pattern   string `json:"pattern"` // "" for the default
	Limit     string `json:"limit"`
	Rate      int64  `json:"rate"`
	Per       string `json:"per"`
	Burst     int64  `json:"burst"`
	Requests  int64  `json:"requests"`
	Refused   int64  `json:"refused"`
	Needed50  int64  `json:"needed_50"`
	Needed99  int64  `json:"needed_99"`
	NeededMax int64  `json:"needed_max"`
	Most      int64  `json:"most"`
	Beyond    int64  `json:"beyond"`
	Suggested int64  `json:"suggested"`
}

// current returns the guard, or a problem if there is none.
func (a *api) current() (*guard.Guard, error) {
	if a.Guard != nil {
		if g := a.Guard(); g != nil {
			return g, nil
		}
	}
	return nil, call.Errorf(call.NotFound, "this daemon has no guard; a section guard: of its configuration makes one")
}

// guardStats answers GET /admin/v1/guard.
func (a *api) guardStats(x *exchange) (any, error) {
	n, err := x.top(defaultOffenders)
	if err != nil {
		return nil, err
	}
	g, err := a.current()
	if err != nil {
		return nil, err
	}
	out := guardOf(g.Stats())
	for _, o := range g.Offenders(n) {
		out.Offenders = append(out.Offenders, offenderAnswer(o))
	}
	for _, s := range g.Suggestions() {
		out.Suggestions = append(out.Suggestions, suggestionAnswer{
			Endpoint: s.Endpoint, Pattern: s.Pattern, Limit: s.Limit, Rate: s.Rate, Per: s.Per.String(), Burst: s.Burst,
			Requests: s.Requests, Refused: s.Refused, Needed50: s.Needed50, Needed99: s.Needed99, NeededMax: s.NeededMax,
			Most: s.Most, Beyond: s.Beyond, Suggested: s.Suggested,
		})
	}
	return out, nil
}

func guardOf(s guard.Stats) *guardAnswer {
	refused := s.Subscriptions.Refused
	out := &guardAnswer{
		InFlight: s.InFlight, Subjects: s.Subjects, Exempted: s.Exempted, Unsettled: s.Unsettled,
		Refused: map[string]int64{}, Violations: map[string]violationsCount{}, Endpoints: []endpointAnswer{},
		Subscriptions: subscriptionsAnswer{
			Open: s.Subscriptions.Open, Items: s.Subscriptions.Items,
			Denied: map[string]int64{"max_subscriptions": refused.TooMany, "max_items": refused.TooManyItems, "rate": refused.TooFast},
		},
		Offenders: []offenderAnswer{}, Suggestions: []suggestionAnswer{},
	}
	for cause, n := range s.Refused {
		out.Refused[cause.String()] = n
	}
	for kind, n := range s.Violations {
		out.Violations[kind.String()] = violationsCount{Enforced: n, Shadow: s.Shadowed[kind]}
	}
	for _, e := range s.Endpoints {
		out.Endpoints = append(out.Endpoints, endpointAnswer{
			Name: e.Name, Allowed: e.Allowed - e.Shadowed, Denied: e.Denied, ShadowDenied: e.Shadowed, Penalized: e.Penalized,
		})
	}
	slices.SortFunc(out.Endpoints, func(a, b endpointAnswer) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// subjectAnswer is what a subject may do.
type subjectAnswer struct {
	Subject      string        `json:"subject"`
	Plan         string        `json:"plan"`
	PenaltyUntil string        `json:"penalty_until"` // "" if there is none
	Quotas       []quotaAnswer `json:"quotas"`
}

// quotaAnswer is the status of a limit, of limits that are charged together the tightest.
type quotaAnswer struct {
	Endpoint     string `json:"endpoint"`
	Limit        string `json:"limit"`
	Capacity     int64  `json:"capacity"`
	Remaining    int64  `json:"remaining"`
	ResetAfterMs int64  `json:"reset_after_ms"`
	Hidden       bool   `json:"hidden"`
	Shadow       bool   `json:"shadow"`
}

// subject answers GET /admin/v1/guard/subject.
func (a *api) subject(x *exchange) (any, error) {
	p, subject := x.params, x.params["subject"]
	if err := x.need("subject", "who it is about, such as user:alice"); err != nil {
		return nil, err
	}
	if storeapi.CheckKey(subject) != nil {
		return nil, call.Invalid("the subject has %d bytes: at most %d fit", len(subject), weir.MaxKeyBytes)
	}
	g, err := a.current()
	if err != nil {
		return nil, err
	}
	until, err := g.Penalty(x.r.Context(), subject)
	if err != nil {
		return nil, err
	}
	quotas, err := g.Quotas(x.r.Context(), guard.Subject{Key: subject, Plan: p["plan"]}, p["method"], p["path"])
	if err != nil {
		return nil, err
	}
	out := subjectAnswer{Subject: subject, Plan: p["plan"], PenaltyUntil: penaltyText(until), Quotas: []quotaAnswer{}}
	for _, q := range quotas {
		out.Quotas = append(out.Quotas, quotaAnswer{
			Endpoint: q.Endpoint, Limit: q.Limit, Capacity: q.Capacity, Remaining: q.Remaining, ResetAfterMs: ruleset.Millis(q.Reset),
			Hidden: q.Hidden, Shadow: q.Shadow,
		})
	}
	return out, nil
}

// penaltyText returns when a penalty ends, to the second.
func penaltyText(until time.Time) string {
	if until.IsZero() {
		return ""
	}
	return until.UTC().Round(time.Second).Format(time.RFC3339)
}

// pardonAnswer says when the penalty would have ended.
type pardonAnswer struct {
	Subject      string `json:"subject"`
	PenaltyUntil string `json:"penalty_until"` // "" if there was none
}

// pardon answers POST /admin/v1/guard/pardon.
func (a *api) pardon(x *exchange) (any, error) {
	if x.req.key == "" {
		return nil, call.Invalid(`"subject" is empty: whose penalty ends, such as user:alice`)
	}
	g, err := a.current()
	if err != nil {
		return nil, err
	}
	until, err := g.Penalty(x.r.Context(), x.req.key)
	if err != nil {
		return nil, err
	}
	if err := g.Pardon(x.r.Context(), x.req.key); err != nil {
		return nil, err
	}
	return pardonAnswer{Subject: x.req.key, PenaltyUntil: penaltyText(until)}, nil
}
