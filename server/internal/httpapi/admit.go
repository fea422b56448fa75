package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/server/internal/strictjson"
)

// The calls of weir.v1.GuardService in plain JSON.

var (
	admitForm  = form{What: "a request", Fields: []string{"method", "path", "address", "principal", "plan", "api_key", "cost", "attributes"}}
	finishForm = form{What: "an outcome", Fields: []string{"ticket", "failed", "cost"}}
	quotasForm = form{What: "a query", Fields: []string{"subject", "plan", "method", "path"}}
)

// admitAnswer is a decision of the guard.
type admitAnswer struct {
	Allowed      bool   `json:"allowed"`
	Policy       string `json:"policy"`
	LimitedBy    string `json:"limited_by"`
	Limit        int64  `json:"limit"`
	Remaining    int64  `json:"remaining"`
	RetryAfterMS int64  `json:"retry_after_ms"`
	ResetAfterMS int64  `json:"reset_after_ms"`
	Reason       string `json:"reason"`
	Cause        string `json:"cause"`
	Penalized    bool   `json:"penalized"`
	Exempt       bool   `json:"exempt"`
	SubjectKind  string `json:"subject_kind"`
	Ticket       string `json:"ticket"`
	ExpiresInMS  int64  `json:"expires_in_ms"`
	Hidden       bool   `json:"hidden"`
}

// quotaAnswer is the status of a limit.
type quotaAnswer struct {
	Policy       string `json:"policy"`
	Name         string `json:"name"`
	Limit        int64  `json:"limit"`
	Remaining    int64  `json:"remaining"`
	ResetAfterMS int64  `json:"reset_after_ms"`
	Hidden       bool   `json:"hidden"`
	Shadow       bool   `json:"shadow"`
}

// admit answers POST /v1/guard.
func (a *api) admit(w http.ResponseWriter, r *http.Request) *call.Error {
	var q call.AdmitQuery
	state := a.State()
	caller, err := a.guardBody(w, r, state, func(s *strictjson.Reader) error { return readAdmission(s, &q) })
	if err != nil {
		return err
	}
	out, err := a.Core.AdmitQuery(r.Context(), caller, &q)
	if err != nil {
		return err
	}
	state.setGuardHeaders(w.Header(), &out.Verdict)
	writeValue(w, admitAnswer{
		Allowed: out.Allowed, Policy: out.Policy(), LimitedBy: out.LimitedBy(), Limit: out.Decision.Limit, Remaining: out.Remaining,
		RetryAfterMS: out.RetryMillis(), ResetAfterMS: ruleset.Millis(out.ResetAfter), Reason: out.Reason.String(), Cause: out.Cause.String(),
		Penalized: out.Penalized, Exempt: out.Exempt, SubjectKind: out.SubjectKind(), Ticket: out.Ticket.ID, ExpiresInMS: out.Ticket.ExpiresMillis(),
		Hidden: out.Hidden(),
	})
	return nil
}

// finish answers POST /v1/guard/finish.
func (a *api) finish(w http.ResponseWriter, r *http.Request) *call.Error {
	var ticket string
	var failed bool
	var cost *int64
	caller, err := a.guardBody(w, r, a.State(), func(s *strictjson.Reader) error {
		_, err := s.Object(&finishForm, func(name string) (err error) {
			switch name {
			case "ticket":
				ticket, err = readText(s, name)
			case "failed":
				failed, err = s.Boolean(`"failed"`)
			case "cost":
				cost = new(int64)
				*cost, err = s.Integer(`"cost"`, weir.MaxCost)
			}
			return err
		})
		return err
	})
	if err != nil {
		return err
	}
	settled, err := a.Core.FinishQuery(r.Context(), caller, ticket, failed, cost)
	if err != nil {
		return err
	}
	writeValue(w, struct {
		Refunded int64 `json:"refunded"`
		Overrun  int64 `json:"overrun"`
		Late     bool  `json:"late"`
	}{settled.Refunded, settled.Overrun, settled.Late})
	return nil
}

// quotas answers POST /v1/guard/quotas.
func (a *api) quotas(w http.ResponseWriter, r *http.Request) *call.Error {
	var subject guard.Subject
	var method, path string
	caller, err := a.guardBody(w, r, a.State(), func(s *strictjson.Reader) error {
		_, err := s.Object(&quotasForm, func(name string) (err error) {
			switch name {
			case "subject":
				subject.Key, err = readText(s, name)
			case "plan":
				subject.Plan, err = readText(s, name)
			case "method":
				method, err = readText(s, name)
			case "path":
				path, err = readText(s, name)
			}
			return err
		})
		return err
	})
	if err != nil {
		return err
	}
	list, err := a.Core.QuotasQuery(r.Context(), caller, subject, method, path)
	if err != nil {
		return err
	}
	out := struct {
		Quotas []quotaAnswer `json:"quotas"`
	}{[]quotaAnswer{}}
	for _, q := range list {
		out.Quotas = append(out.Quotas, quotaAnswer{q.Endpoint, q.Limit, q.Capacity, q.Remaining, ruleset.Millis(q.Reset), q.Hidden, q.Shadow})
	}
	writeValue(w, out)
	return nil
}

// answering is a handler that answers the errors of f.
func answering(f func(http.ResponseWriter, *http.Request) *call.Error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := f(w, r); err != nil {
			err.Write(w)
		}
	}
}

// guardBody authenticates the caller and reads the body.
func (a *api) guardBody(w http.ResponseWriter, r *http.Request, state *State, read func(*strictjson.Reader) error) (call.Caller, *call.Error) {
	caller, err := a.Core.HTTP(state.State, r)
	if err != nil {
		return caller, err
	}
	var body bytes.Buffer
	if err := call.ReadBody(w, r, &body, maxBody); err != nil {
		return caller, err
	}
	s := strictjson.New(body.Bytes())
	bad := read(s)
	if bad == nil {
		bad = s.End()
	}
	if bad != nil {
		return caller, call.Invalid("%s", bad)
	}
	return caller, nil
}

func readAdmission(s *strictjson.Reader, q *call.AdmitQuery) error {
	_, err := s.Object(&admitForm, func(name string) (err error) {
		switch name {
		case "method":
			q.Method, err = readText(s, name)
		case "path":
			q.Path, err = readText(s, name)
		case "address":
			q.Address, err = readText(s, name)
		case "principal":
			q.Principal, err = readText(s, name)
		case "plan":
			q.Plan, err = readText(s, name)
		case "api_key":
			q.APIKey, err = readText(s, name)
		case "cost":
			q.Cost, err = s.Integer(`"cost"`, weir.MaxCost)
		case "attributes":
			err = s.Entries(`"attributes"`, call.MaxKeys, func(name string) error {
				value, err := readKey(s, `a value of "attributes"`)
				q.Attributes = append(q.Attributes, ruleset.Attribute{Name: name, Value: value})
				return err
			})
		}
		return err
	})
	return err
}

// readText reads the text of a field.
func readText(s *strictjson.Reader, name string) (string, error) {
	text, err := s.Bytes(`"` + name + `"`)
	return string(text), err
}

// writeValue answers with a value that always marshals.
func writeValue(w http.ResponseWriter, value any) {
	text, err := json.Marshal(value)
	if err != nil { // strings, numbers and booleans always marshal
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(text, '\n')) // an error means that the caller is gone
}
