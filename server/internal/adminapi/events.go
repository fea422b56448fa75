package adminapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"

	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
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
	Unit      string `json:"unit,omitempty"` // of the cost, if it is not requests
	Client    string `json:"client"`
	Class     string `json:"class,omitempty"` // that was charged, under a policy with classes
	Shadow    string `json:"shadow"`          // the limit in shadow that would have refused
}

// watcher is somebody who reads decisions.
type watcher struct {
	policy  string // of the decisions that it wants, "" for all
	denied  bool   // it wants only refusals
	out     *stream
	records <-chan ruleset.Record
	lost    func() int64 // since it was last asked

	violations <-chan guard.Violation // nil if there are none
	levels     <-chan budget.LevelChange
}

// events answers GET /admin/v1/events.
func (a *api) events(x *exchange) (any, error) {
	if _, given := x.params["policy"]; given {
		if _, err := x.rule(x.req.policy); err != nil {
			return nil, err
		}
	}
	denied, given := x.params["denied"]
	if given && denied != "true" && denied != "false" {
		return nil, call.Invalid(`parameter "denied" must be true or false`)
	}
	records, lost, cancel, err := a.Subscribe()
	if err != nil {
		return nil, call.Errorf(call.Unavailable, "too many watch already; close another stream")
	}
	defer cancel()
	violations, lostViolations, cancelViolations, err := a.violations()
	if err != nil {
		return nil, call.Errorf(call.Unavailable, "too many watch already; close another stream")
	}
	defer cancelViolations()
	levels, lostLevels, cancelLevels, err := a.levels()
	if err != nil {
		return nil, call.Errorf(call.Unavailable, "too many watch already; close another stream")
	}
	defer cancelLevels()
	out, err := openStream(x.w)
	if err != nil {
		return nil, nil // the reader is gone
	}
	all := func() int64 { return lost() + lostViolations() + lostLevels() }
	a.follow(x, &watcher{policy: x.req.policy, denied: denied == "true", out: out, records: records, violations: violations, levels: levels, lost: all})
	return nil, nil
}

// follow sends decisions until the reader leaves, may not read any more, or there are no
// more.
func (a *api) follow(x *exchange, w *watcher) {
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		select {
		case <-x.r.Context().Done():
			return
		case r, open := <-w.records:
			if !open {
				return
			}
			w.send(&r)
			for range len(w.records) { // all that is there already, with one flush; nobody else receives
				r := <-w.records
				w.send(&r)
			}
		case v := <-w.violations:
			w.violated(&v)
		case c := <-w.levels:
			w.levelChanged(&c)
		case <-tick.C:
			if _, err := a.State().Authenticator.Operator(x.r, identity.Read); err != nil {
				return
			}
			w.out.comment("keep-alive")
		}
		if lost := w.lost(); lost > 0 {
			w.out.event("lost", map[string]int64{"lost": lost}) // decisions that came too fast to be sent
		}
		if w.out.flush() != nil {
			return
		}
	}
}

// send sends a decision that the reader wants.
func (w *watcher) send(r *ruleset.Record) {
	if w.policy != "" && w.policy != r.Policy() || w.denied && r.Allowed {
		return
	}
	w.out.event("", eventOf(r))
}

func eventOf(r *ruleset.Record) eventAnswer {
	e := eventAnswer{
		Time: r.At.UTC().Format("2006-01-02T15:04:05.000Z"), Policy: r.Policy(), Key: r.Key, Allowed: r.Allowed,
		LimitedBy: r.LimitedBy(), Reason: r.Reason.String(), Cost: r.Cost, Client: r.Client, Class: r.Class,
	}
	if r.Unit != ruleset.Requests {
		e.Unit = r.Unit
	}
	if r.Shadow >= 0 {
		e.Shadow = r.Variant.LimitName(r.Shadow)
	}
	return e
}

// patience is how long a reader may take to receive what is sent at once.
const patience = 10 * time.Second

// stream writes server-sent events. Nothing leaves before flush.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buffer  bytes.Buffer
}

// openStream begins the answer.
func openStream(w http.ResponseWriter) (*stream, error) {
	s := &stream{w: w, control: http.NewResponseController(w)}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would keep events until it has many
	s.comment("open")
	return s, s.flush()
}

// comment adds a line that readers ignore.
func (s *stream) comment(text string) { s.buffer.WriteString(": " + text + "\n\n") }

// event adds an event. JSON has no line breaks, so it is one line of data.
func (s *stream) event(name string, data any) {
	text, err := json.Marshal(data)
	if err != nil { // strings and numbers always marshal
		panic(err)
	}
	if name != "" {
		s.buffer.WriteString("event: " + name + "\n")
	}
	s.buffer.WriteString("data: ")
	s.buffer.Write(text)
	s.buffer.WriteString("\n\n")
}

// flush sends what was added. It fails if the reader is gone, or too slow. The server's
// deadline is for short answers, so it does not hold here; between two flushes there is
// none, since HTTP/2 would end the stream when it passes. Where a connection cannot have
// deadlines, there is none to lift.
func (s *stream) flush() error {
	if s.buffer.Len() == 0 {
		return nil
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(patience))
	defer s.control.SetWriteDeadline(time.Time{})
	_, err := s.buffer.WriteTo(s.w)
	if err != nil {
		return err
	}
	return s.control.Flush()
}
