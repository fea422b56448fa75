package weirhttp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/weirlimit/weir"
)

// The types of problems. The first three are those of the draft that has the
// RateLimit fields; all problems of these types may name the limits that refused.
const (
	TypeQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	TypeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	TypeAbnormalUsage   = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"

	// TypeBlocked is weir's own: the key is on a list, whatever it used.
	TypeBlocked = "urn:weir:blocked"

	// TypeBlank says no more than the status does.
	TypeBlank = "about:blank"
)

// Problem is the body of an answer that is an error, for programs and for people
// (RFC 9457). Members may hold any text; it is escaped.
type Problem struct {
	// Type says what kind of problem it is, for example TypeQuotaExceeded. The
	// default is TypeBlank.
	Type string `json:"type"`

	// Title says it to people, for example "Quota exceeded". It is the same for
	// all problems of the type. The default is the text of the status.
	Title string `json:"title"`

	// Status is the response's, for example 429. One that is no error becomes 500.
	Status int `json:"status"`

	// Detail says what to do about this one. It must not have keys in it.
	Detail string `json:"detail,omitempty"`

	// Violated are the names of the limits that refused, as in RateLimit-Policy,
	// for example ["api.daily"].
	Violated []string `json:"violated-policies,omitempty"`
}

// Write answers with the problem, which no cache may store. Set other fields, such
// as those of SetHeaders, before.
func (p Problem) Write(w http.ResponseWriter) {
	p = p.normal()
	body, err := json.Marshal(p)
	if err != nil { // strings and a number always marshal
		panic(err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	w.Write(append(body, '\n')) // an error means that the caller is gone
}

// normal returns the problem with its defaults filled in.
func (p Problem) normal() Problem {
	if p.Status < 400 || p.Status > 599 {
		p.Status = http.StatusInternalServerError
	}
	if p.Type == "" {
		p.Type = TypeBlank
	}
	if p.Title == "" {
		p.Title = http.StatusText(p.Status)
	}
	return p
}

// Denied returns the problem of a refusal. Policy is the policy's name and violated
// that of the limit, as weir.Policy.LimitName returns it, or "".
func Denied(policy, violated string, d weir.Decision) Problem {
	who := subject(policy, violated)
	switch d.Reason {
	case weir.Invalid:
		return Problem{
			Type: TypeBlank, Status: http.StatusBadRequest, Title: http.StatusText(http.StatusBadRequest),
			Detail: "the cost or the time to live is out of range for " + who + ", or the policy must be reserved from",
		}
	case weir.Blocked:
		return Problem{
			Type: TypeBlocked, Status: http.StatusForbidden, Title: "Blocked",
			Detail: "this caller is blocked by policy " + policy + "; " + advice(d),
		}
	case weir.StoreDown:
		return Problem{
			Type: TypeReducedCapacity, Status: http.StatusServiceUnavailable, Title: "Temporary reduced capacity",
			Detail: who + " cannot be counted at the moment; " + advice(d), Violated: names(violated),
		}
	}
	return Problem{
		Type: TypeQuotaExceeded, Status: http.StatusTooManyRequests, Title: "Quota exceeded",
		Detail: exceeded(who, d), Violated: names(violated),
	}
}

// exceeded says why there is no room and what to do.
func exceeded(who string, d weir.Decision) string {
	switch d.Reason {
	case weir.TooCostly:
		return fmt.Sprintf("the cost is more than %s ever admits, which is %d; waiting cannot help", who, d.Limit)
	case weir.QueueFull:
		return "too many are waiting for " + who + "; " + advice(d)
	case weir.TooLate:
		return who + " has no room before the deadline; " + advice(d)
	case weir.NotCharged:
		return "not charged to " + who + ": another charge of the batch was refused"
	}
	return who + " is used up; " + advice(d)
}

// subject names the limit. The main limit of a policy has the policy's name.
func subject(policy, violated string) string {
	if violated == "" || violated == policy {
		return "policy " + policy
	}
	return "limit " + violated + " of policy " + policy
}

func names(violated string) []string {
	if violated == "" {
		return nil
	}
	return []string{violated}
}

// advice says how long to wait, in whole milliseconds: the header has seconds only.
func advice(d weir.Decision) string {
	if d.RetryAfter == weir.Never {
		return "waiting cannot help"
	}
	return "retry after " + wholeMillis(d.RetryAfter).String()
}

// wholeMillis rounds up, to at least one.
func wholeMillis(d time.Duration) time.Duration {
	const ms = time.Millisecond
	if d > maxWhole {
		return maxWhole
	}
	return max(1, (d-1)/ms+1) * ms
}

// maxWhole is the longest duration of whole milliseconds.
const maxWhole = (1<<63 - 1) / time.Millisecond * time.Millisecond
