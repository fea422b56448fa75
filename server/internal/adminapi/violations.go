package adminapi

import (
	"time"

	"github.com/weirlimit/weir/guard"
)

// violationAnswer is a violation of the guard.
type violationAnswer struct {
	Time    string `json:"time"`
	Kind    string `json:"kind"`
	Subject string `json:"subject"`
	Policy  string `json:"policy"` // of the endpoint, "" if it is not about one
	Limit   string `json:"limit"`  // that refused, or ""
	Shadow  bool   `json:"shadow"`
	Until   string `json:"until"` // when the penalty ends, or ""
}

// violations subscribes to the violations of the guard, if there can be any.
func (a *api) violations() (list <-chan guard.Violation, lost func() int64, cancel func(), err error) {
	if a.SubscribeViolations == nil {
		return nil, func() int64 { return 0 }, func() {}, nil
	}
	return a.SubscribeViolations()
}

// violated sends a violation that the reader wants, as an event of its own kind. Those in shadow refused
// nothing.
func (w *watcher) violated(v *guard.Violation) {
	if w.policy != "" && w.policy != v.Endpoint || w.denied && v.Shadow {
		return
	}
	out := violationAnswer{
		Time: v.At.UTC().Format("2006-01-02T15:04:05.000Z"), Kind: v.Kind.String(), Subject: v.Subject, Policy: v.Endpoint, Limit: v.Limit, Shadow: v.Shadow,
	}
	if !v.Until.IsZero() {
		out.Until = v.Until.UTC().Format(time.RFC3339)
	}
	w.out.event("violation", out)
}
