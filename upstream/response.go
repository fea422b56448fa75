package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/weirlimit/weir/budget"
)

// How much of a response is read to find a refusal in it, or what is no answer. Errors are short, but the answer to a batch
// has the others, too.
const (
	maxPeek      = 64 << 10
	maxPeekBatch = 1 << 20
	startPeek    = 512 // of one that is longer for sure
)

func (s *sending) mostPeek() int64 {
	if len(s.call.Methods) > 1 {
		return maxPeekBatch
	}
	return maxPeek
}

// judge returns what the response says, in its body only if that is known.
func (a *attempt) judge() result {
	resp, start := a.resp, a.start
	if !a.whole {
		start = nil
	}
	if resp.StatusCode < 300 && !bytes.Contains(start, []byte(`"error"`)) {
		return result{}
	}
	if r, refused := budget.Classify(resp.StatusCode, resp.Header, start, time.Now()); refused {
		return result{outcome: outcomeOf(r.Class), refusal: r, reason: r.Class.String() + " (" + r.Reason + ")"}
	}
	if resp.StatusCode >= 500 || resp.StatusCode >= 300 && resp.StatusCode < 400 { // redirects are not followed
		return result{outcome: failed, reason: fmt.Sprintf("status %d", resp.StatusCode)}
	}
	return result{}
}

// peek reads the beginning of a response's body, up to most bytes, and puts it back. Whole is whether that is all.
func peek(resp *http.Response, most int64) (start []byte, whole bool, err error) {
	if resp.ContentLength > most {
		start = make([]byte, startPeek)
		n, err := io.ReadAtLeast(resp.Body, start, 1)
		if err != nil {
			_ = resp.Body.Close()
			return nil, false, err
		}
		start = start[:n]
	} else {
		buf := bytes.NewBuffer(make([]byte, 0, max(bytes.MinRead, resp.ContentLength+bytes.MinRead)))
		if _, err = buf.ReadFrom(io.LimitReader(resp.Body, most+1)); err != nil {
			_ = resp.Body.Close()
			return nil, false, err
		}
		if start = buf.Bytes(); int64(len(start)) <= most {
			_ = resp.Body.Close()
			setBody(resp, start)
			return start, true, nil
		}
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start), resp.Body), resp.Body}
	return start, false, nil
}

// errNotJSON is about the answer of an endpoint that is no JSON-RPC: it may be a page that asks for a login.
var errNotJSON = errors.New("upstream: the answer is not JSON")

// errSwitched is about an endpoint that has switched to another protocol, which nobody has asked for.
var errSwitched = errors.New("upstream: status 101")

// isAnswer reports whether a body, or its beginning, can be the answer of an endpoint of JSON-RPC.
func (s *sending) isAnswer(start []byte, whole bool) bool {
	text := bytes.TrimLeft(start, " \t\r\n")
	switch {
	case len(text) == 0:
		return s.call.NoAnswer || !whole
	case text[0] != '{' && text[0] != '[':
		return false
	}
	return !whole || json.Valid(start)
}

// setBody replaces the body of a response.
func setBody(resp *http.Response, body []byte) {
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if resp.ContentLength = int64(len(body)); resp.Header.Get("Content-Length") != "" {
		resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	}
}

// ending is the body of a response that is being received. Its errors have nothing secret in them, and it ends if the
// endpoint sends nothing for the timeout. The call is in flight until its end.
type ending struct {
	io.ReadCloser
	lease   *lease
	timer   *time.Timer // cancels the request
	timeout time.Duration
	stop    func() bool // ends what closes the body with the request's context
	cancel  context.CancelCauseFunc
}

func (e *ending) Read(p []byte) (int, error) {
	e.timer.Reset(e.timeout)
	n, err := e.ReadCloser.Read(p)
	late := !e.timer.Stop()
	if err != nil {
		e.lease.end()
	}
	if err != nil && err != io.EOF {
		failure := &TryError{Alias: e.lease.endpoint.Alias, Reason: reasonOf(err), Sent: true}
		if late {
			failure.Reason, failure.Timeout = "timeout", true
		}
		err = failure
	}
	return n, err
}

func (e *ending) Close() error {
	defer e.lease.end()
	defer e.cancel(nil)
	e.stop()
	return e.ReadCloser.Close()
}
