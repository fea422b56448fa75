package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/ruleset"
)

// reserve answers POST /v1/reserve.
func (a *api) reserve(w http.ResponseWriter, r *http.Request) {
	state := a.state()
	client, ok := caller(w, r, state)
	if !ok {
		return
	}
	s := scratches.Get().(*scratch)
	defer s.free()
	if !s.read(w, r, &reserveForm) {
		return
	}
	req := &s.request
	rule := state.rule(w, client, req.policy)
	if rule == nil {
		return
	}
	req.query.Client = nameOf(client)
	ttl := req.lasts()
	began := time.Now()
	v, ticket, err := a.engine.Reserve(r.Context(), rule, &req.query, ttl)
	if err != nil {
		a.writeUndecided(w, r, rule.Name(), err)
		return
	}
	a.tell(s, &req.query, false, &v, time.Since(began))
	state.setHeaders(w.Header(), &v)
	s.out = appendReservation(s.out[:0], &v, ticket, ttl)
	writeJSON(w, s.out)
}

// appendReservation appends a verdict and, if the request was admitted, the ticket and its TTL.
func appendReservation(b []byte, v *ruleset.Verdict, ticket *ruleset.Ticket, ttl time.Duration) []byte {
	id := ""
	if ticket != nil {
		id = ticket.String()
	} else {
		ttl = 0
	}
	b = append(appendDecision(b, v), `,"id":"`...)
	b = append(b, id...)
	b = append(b, `","expires_in_ms":`...)
	return append(strconv.AppendInt(b, ttl.Milliseconds(), 10), "}\n"...)
}

// lasts returns the TTL of a reservation.
func (req *request) lasts() time.Duration {
	if req.ttl == 0 {
		return compiled.DefaultTTL
	}
	return millisecond(req.ttl)
}

// commit answers POST /v1/commit.
func (a *api) commit(w http.ResponseWriter, r *http.Request) { a.settle(w, r, &commitForm) }

// cancel answers POST /v1/cancel.
func (a *api) cancel(w http.ResponseWriter, r *http.Request) { a.settle(w, r, &cancelForm) }

func (a *api) settle(w http.ResponseWriter, r *http.Request, f *form) {
	s := scratches.Get().(*scratch)
	defer s.free()
	ticket, ok := a.ticket(w, r, s, f)
	if !ok {
		return
	}
	used := s.request.used
	used.None = f == &cancelForm
	settled, err := a.engine.Settle(r.Context(), ticket, used)
	if err != nil {
		a.writeUndecided(w, r, ticket.Policy(), err)
		return
	}
	s.out = append(s.out[:0], `{"refunded":`...)
	s.out = strconv.AppendInt(s.out, settled.Refunded, 10)
	s.out = append(s.out, `,"overrun":`...)
	s.out = strconv.AppendInt(s.out, settled.Overrun, 10)
	s.out = append(s.out, `,"late":`...)
	s.out = append(strconv.AppendBool(s.out, settled.Late), "}\n"...)
	writeJSON(w, s.out)
}

// renew answers POST /v1/renew.
func (a *api) renew(w http.ResponseWriter, r *http.Request) {
	s := scratches.Get().(*scratch)
	defer s.free()
	ticket, ok := a.ticket(w, r, s, &renewForm)
	if !ok {
		return
	}
	ttl := s.request.lasts()
	renewed, err := a.engine.Renew(r.Context(), ticket, ttl)
	if err != nil {
		a.writeUndecided(w, r, ticket.Policy(), err)
		return
	}
	if !renewed {
		ttl = 0
	}
	s.out = append(s.out[:0], `{"renewed":`...)
	s.out = strconv.AppendBool(s.out, renewed)
	s.out = append(s.out, `,"expires_in_ms":`...)
	s.out = append(strconv.AppendInt(s.out, ttl.Milliseconds(), 10), "}\n"...)
	writeJSON(w, s.out)
}

// ticket reads a request about a reservation, or answers with a problem and returns false.
func (a *api) ticket(w http.ResponseWriter, r *http.Request, s *scratch, f *form) (*ruleset.Ticket, bool) {
	client, ok := caller(w, r, a.state())
	if !ok || !s.read(w, r, f) {
		return nil, false
	}
	ticket, err := ruleset.ParseTicket(s.request.id, nameOf(client))
	if err != nil {
		a.writeUndecided(w, r, "", err)
		return nil, false
	}
	return ticket, true
}

func writeJSON(w http.ResponseWriter, body []byte) {
	w.Header()["Content-Type"] = contentJSON
	w.Write(body) // an error means that the caller is gone
}
