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
	s := scratches.Get().(*scratch)
	defer s.free()
	caller, rule, err := a.begin(w, r, state, s, &reserveForm)
	if err != nil {
		writeError(w, err)
		return
	}
	ttl := s.request.lasts()
	v, ticket, err := a.core.Reserve(r.Context(), caller, rule, &s.request.query, ttl)
	if err != nil {
		writeError(w, err)
		return
	}
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
	caller, err := a.enter(w, r, a.state(), s, f)
	if err != nil {
		writeError(w, err)
		return
	}
	used := s.request.used
	used.None = f == &cancelForm
	settled, err := a.core.Settle(r.Context(), caller, s.request.id, used)
	if err != nil {
		writeError(w, err)
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
	caller, err := a.enter(w, r, a.state(), s, &renewForm)
	if err != nil {
		writeError(w, err)
		return
	}
	ttl := s.request.lasts()
	renewed, err := a.core.Renew(r.Context(), caller, s.request.id, ttl)
	if err != nil {
		writeError(w, err)
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

func writeJSON(w http.ResponseWriter, body []byte) {
	w.Header()["Content-Type"] = contentJSON
	w.Write(body) // an error means that the caller is gone
}
