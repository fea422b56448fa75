package adminapi

import (
	"net/http"
	"time"

	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/ruleset"
)

// keepAlive is how often a stream says that it lives, and looks whether its reader may
// still read.
const keepAlive = 15 * time.Second

// eventAnswer is a decision.
type eventAnswer struct {
	Time      string `json:"time"` // when it was sent, to the millisecond
	Policy    string `json:"policy"`
	Key       string `json:"key"`
	Allowed   bool   `json:"allowed"`
	LimitedBy string `json:"limited_by"`
	Reason    string `json:"reason"`
	Cost      int64  `json:"cost"`
	Client    string `json:"client"`
	Shadow    string `json:"shadow"` // the limit in shadow that would have refused
}

// lostAnswer says how many decisions came too fast to be sent.
type lostAnswer struct {
	Lost int64 `json:"lost"`
}

// filter is which decisions a reader wants.
type filter struct {
	policy string // "" for all
	denied bool   // only refusals
}

// watcher is somebody who reads decisions.
type watcher struct {
	filter
	out     *stream
	records <-chan ruleset.Record
	lost    func() int64 // since it was last asked

	violations <-chan guard.Violation // nil if there are none
}

// events answers GET /admin/v1/events.
func (a *api) events(c *call) (any, error) {
	f, err := c.filter()
	if err != nil {
		return nil, err
	}
	records, lost, cancel, err := a.Subscribe()
	if err != nil {
		return nil, problemf(http.StatusServiceUnavailable, "too many watch already; close another stream")
	}
	defer cancel()
	violations, lostViolations, cancelViolations, err := a.violations()
	if err != nil {
		return nil, problemf(http.StatusServiceUnavailable, "too many watch already; close another stream")
	}
	defer cancelViolations()
	out := newStream(c.w)
	if out.open() != nil {
		return nil, nil // the reader is gone
	}
	all := func() int64 { return lost() + lostViolations() }
	a.follow(c, &watcher{filter: f, out: out, records: records, violations: violations, lost: all})
	return nil, nil
}

// filter reads the query.
func (c *call) filter() (f filter, err error) {
	p, err := c.params("policy", "denied")
	if err != nil {
		return f, err
	}
	f.policy = p["policy"]
	if _, given := p["policy"]; given {
		if _, err := c.rule(f.policy); err != nil {
			return f, err
		}
	}
	denied, given := p["denied"]
	f.denied = denied == "true"
	if given && !f.denied && denied != "false" {
		return f, problemf(http.StatusBadRequest, `parameter "denied" must be true or false`)
	}
	return f, nil
}

// follow sends decisions until the reader leaves, may not read any more, or there are no
// more.
func (a *api) follow(c *call, w *watcher) {
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		select {
		case <-c.r.Context().Done():
			return
		case r, open := <-w.records:
			if !open {
				return
			}
			w.send(&r)
			w.drain()
		case v := <-w.violations:
			w.violated(&v)
		case <-tick.C:
			if _, err := a.State().Authenticator.Operator(c.r, identity.Read); err != nil {
				return
			}
			w.out.comment("keep-alive")
		}
		w.tellLost()
		if w.out.flush() != nil {
			return
		}
	}
}

// drain sends what is there already, so that all of it needs one flush.
func (w *watcher) drain() {
	for range len(w.records) { // nobody else receives
		r := <-w.records
		w.send(&r)
	}
}

// send sends a decision that the reader wants.
func (w *watcher) send(r *ruleset.Record) {
	if w.policy != "" && w.policy != r.Policy() || w.denied && r.Allowed {
		return
	}
	w.out.event("", eventOf(r))
}

// tellLost says how many decisions were lost since it last did.
func (w *watcher) tellLost() {
	if lost := w.lost(); lost > 0 {
		w.out.event("lost", lostAnswer{lost})
	}
}

func eventOf(r *ruleset.Record) eventAnswer {
	e := eventAnswer{
		Time: r.At.UTC().Format("2006-01-02T15:04:05.000Z"), Policy: r.Policy(), Key: r.Key, Allowed: r.Allowed,
		LimitedBy: r.LimitedBy(), Reason: r.Reason.String(), Cost: r.Cost, Client: r.Client,
	}
	if r.Shadow >= 0 {
		e.Shadow = r.Variant.LimitName(r.Shadow)
	}
	return e
}
