package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/jsonrpc"
	"github.com/weirlimit/weir/upstream"
)

// The codes of errors of the gateway itself, as EIP-1474 defines them, and as JSON-RPC does.
const (
	codeUnavailable = -32002 // no endpoint has answered
	codeLimited     = -32005 // all endpoints are at their limits
	codeMethod      = -32601 // no endpoint takes the method
	codeInternal    = -32603
)

// statusCancelled is what is logged of a request whose caller has left: nobody reads it.
const statusCancelled = 499

// A problem is an answer of the gateway's own: a status and an error of JSON-RPC.
type problem struct {
	status  int
	code    int
	message string
	data    *details      // nil if there is none
	retry   time.Duration // for Retry-After, 0 for none
}

// details are the member data of an error.
type details struct {
	Reason       string `json:"reason"`
	RetryAfterMs int64  `json:"retry_after_ms,omitempty"`
	Limit        string `json:"limit,omitempty"`
	Upstream     string `json:"upstream,omitempty"`

	// Executed says that an endpoint may have executed the request, although it has not answered.
	Executed bool `json:"maybe_executed,omitempty"`
}

// problemOf returns what a caller is told of an error.
func (x *exchange) problemOf(err error) *problem {
	limited, down, try, own := (*upstream.LimitedError)(nil), (*upstream.DownError)(nil), (*upstream.TryError)(nil), (*problemError)(nil)
	switch {
	case errors.As(err, &own):
		return &own.problem
	case errors.As(err, &limited):
		return limitedProblem(limited, x.request.Batch)
	case errors.As(err, &down):
		return downProblem(down)
	case errors.As(err, &try):
		return tryProblem(try)
	case errors.Is(err, context.DeadlineExceeded):
		return &problem{
			status: http.StatusGatewayTimeout, code: codeUnavailable, message: "there was no answer within the time that the request may take",
			data: &details{Reason: "timeout"},
		}
	}
	x.route.undecided(x.settings.logger, err)
	return &problem{
		status: http.StatusServiceUnavailable, code: codeUnavailable, message: "the limits of the upstreams cannot be checked at the moment",
		data: &details{Reason: "limiter"},
	}
}

// undecided logs that the limits could not be checked, at most once in a second.
func (r *Route) undecided(logger *slog.Logger, err error) {
	now := time.Now().UnixNano()
	if last := r.logged.Load(); now-last >= int64(time.Second) && r.logged.CompareAndSwap(last, now) {
		logger.Error("gateway: limits cannot be checked, and requests are refused", "route", r.Name(), "error", err)
	}
}

// problemError is a problem that is found while a response is handled.
type problemError struct{ problem }

func (e *problemError) Error() string { return "gateway: " + e.message }

func limitedProblem(e *upstream.LimitedError, batch bool) *problem {
	p := &problem{
		status: http.StatusTooManyRequests, code: codeLimited, retry: e.RetryAfter,
		data: &details{Reason: e.Reason.String(), Limit: limitName(e.Alias, e.Limit), Upstream: e.Alias},
	}
	if e.RetryAfter == weir.Never {
		p.status, p.retry = http.StatusBadRequest, 0
		p.message = fmt.Sprintf("no upstream can ever take this request: it costs more than %s has at once", p.data.Limit)
		if strings.HasPrefix(e.Limit, "budget") {
			p.message += " for its class of work"
		}
		if batch {
			p.message += ", so send less in a batch"
		}
		return p
	}
	p.data.RetryAfterMs = ceil(e.RetryAfter, time.Millisecond)
	p.message = "all upstreams are at their limits"
	if e.Reason == weir.QueueFull {
		p.message = "too many requests are waiting for an upstream"
	}
	p.message += fmt.Sprintf(": retry in %v, when %s has room", time.Duration(p.data.RetryAfterMs)*time.Millisecond, p.data.Limit)
	return p
}

func downProblem(e *upstream.DownError) *problem {
	if e.Unserved {
		return &problem{
			status: http.StatusForbidden, code: codeMethod, message: "no upstream is configured to take this method",
			data: &details{Reason: "method"},
		}
	}
	message := "no upstream is available"
	if len(e.Reasons) > 0 {
		message += ": " + strings.Join(e.Reasons, "; ")
	}
	p := &problem{status: http.StatusBadGateway, code: codeUnavailable, message: message, data: &details{Reason: "down"}, retry: e.RetryAfter}
	if e.RetryAfter > 0 {
		p.data.RetryAfterMs = ceil(e.RetryAfter, time.Millisecond)
	}
	return p
}

func tryProblem(e *upstream.TryError) *problem {
	p := &problem{
		status: http.StatusBadGateway, code: codeUnavailable, message: fmt.Sprintf("%s has not answered: %s", e.Alias, e.Reason),
		data: &details{Reason: e.Reason, Upstream: e.Alias, Executed: e.Sent},
	}
	if e.Timeout {
		p.status = http.StatusGatewayTimeout
	}
	return p
}

// answerProblem is about an answer of an endpoint that callers cannot get as it is.
func answerProblem(reply *upstream.Reply, what string) *problem {
	return &problem{
		status: http.StatusBadGateway, code: codeUnavailable, message: fmt.Sprintf("%s has answered with %s", reply.Alias, what),
		data: &details{Reason: what, Upstream: reply.Alias},
	}
}

// write answers with the problem. In place of a batch it is one error for each call that has an id.
func (p *problem) write(w http.ResponseWriter, request jsonrpc.Request) {
	h := w.Header()
	h["Content-Type"] = mediaType
	h.Set("Cache-Control", "no-store")
	if p.retry > 0 {
		h.Set("Retry-After", strconv.FormatInt(ceil(p.retry, time.Second), 10))
	}
	if p.data != nil && p.data.Limit != "" {
		h.Set(fieldLimit, p.data.Limit)
	}
	body := p.body(request)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.status)
	_, _ = w.Write(body) // an error means that the caller is gone
}

// body returns the body for a request, which may be empty.
func (p *problem) body(request jsonrpc.Request) []byte {
	var ids []string
	for _, c := range request.Calls {
		if !c.IsNotification {
			ids = append(ids, c.ID)
		}
	}
	if len(ids) == 0 && len(request.Calls) > 0 && p.status == http.StatusOK { // notifications have no responses
		return nil
	}
	tail := p.tail()
	if !request.Batch || len(ids) == 0 {
		return append(object("null", ids, tail), '\n')
	}
	body := []byte{'['}
	for i := range ids {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, object("", ids[i:i+1], tail)...)
	}
	return append(body, "]\n"...)
}

// object returns a response of JSON-RPC with the first of the ids, or else another one.
func object(otherwise string, ids []string, tail []byte) []byte {
	id := otherwise
	if len(ids) > 0 {
		id = ids[0]
	}
	return slices.Concat([]byte(`{"jsonrpc":"2.0","id":`), []byte(id), []byte(`,"error":`), tail, []byte{'}'})
}

// tail returns the error itself.
func (p *problem) tail() []byte {
	text, err := json.Marshal(struct {
		Code    int      `json:"code"`
		Message string   `json:"message"`
		Data    *details `json:"data,omitempty"`
	}{p.code, p.message, p.data})
	if err != nil { // strings and numbers always marshal
		panic(err)
	}
	return text
}

// ceil returns a duration in units, rounded up to at least one.
func ceil(d, unit time.Duration) int64 { return max(1, int64((d-1)/unit)+1) }
