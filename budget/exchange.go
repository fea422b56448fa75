package budget

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// exchange is a request of a Transport and its response.
//
// The request is reserved before it is sent. Once it is written, it costs what was reserved, unless the
// response has to say what it has cost: so nothing is held while the provider works, and a class with slow
// calls can use all of its share. A request that was never written is given back. The base transport may
// write a request again, after a connection was lost: each further time is charged besides, whether there is
// room or not.
type exchange struct {
	transport  *Transport // set once, like the next four
	controller *Controller
	cost       Cost
	reserved   *Reservation
	ctx        context.Context // of the request

	mu       sync.Mutex // guards the fields below
	reports  bool       // the base transport reports what it does, as net/http does
	writes   int        // how often it has written the request
	returned bool       // it has returned without having written it, so the reservation is cancelled
}

// sendable returns the request that the base transport is given.
func (x *exchange) sendable(r *http.Request, body []byte) *http.Request {
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GetConn:      func(string) { x.report(false) },
		WroteHeaders: func() { x.report(true) },
	})
	return withBody(ctx, r, body)
}

// report notes what the base transport does. It returns at once, because a connection waits for it.
func (x *exchange) report(written bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.reports = true
	if !written {
		return
	}
	x.writes++
	switch {
	case x.writes > 1 || x.returned:
		go x.chargeAgain()
	case !x.transport.settlesLater():
		go x.commit()
	}
}

// chargeAgain charges a request that was written once more.
func (x *exchange) chargeAgain() {
	ctx, cancel := detached(x.ctx)
	defer cancel()
	if err := x.controller.overrun(ctx, x.cost); err != nil {
		x.warn("a request that was sent again is not charged", err)
	}
}

// commit ends the reservation as used. Of several calls the first does it, and the others wait for it.
func (x *exchange) commit() { x.settle(x.reserved.Commit) }

func (x *exchange) settle(settle func(context.Context) (weir.Settled, error)) {
	ctx, cancel := detached(x.ctx)
	defer cancel()
	if _, err := settle(ctx); err != nil {
		x.warn("a reservation is not settled, and counts as used", err)
	}
}

func (x *exchange) warn(what string, err error) {
	x.controller.account.config().Logger.Warn("budget: "+what, "account", x.controller.account.Name(), "error", err)
}

// detached returns a context for what must be charged even if the caller has left.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), time.Second)
}

// wasSent reports, when the base transport has returned, whether it may have sent the request. One that does not
// report may have.
func (x *exchange) wasSent(err error) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.returned = x.writes == 0 && x.reports && err != nil
	return !x.returned
}

// finish handles what the base transport has returned.
func (x *exchange) finish(resp *http.Response, err error) (*http.Response, error) {
	switch sent := x.wasSent(err); {
	case !sent:
		x.settle(x.reserved.Cancel)
		return resp, err
	case err != nil || !x.transport.settlesLater():
		x.commit()
	}
	if err == nil {
		x.listen(resp)
		x.watch(resp)
	}
	return resp, err
}

// listen applies what the status and the headers of a response say.
func (x *exchange) listen(resp *http.Response) {
	c := x.controller
	if err := c.account.Learn(x.ctx, resp.Header); err != nil && x.ctx.Err() == nil {
		x.warn("what the provider says cannot be applied", err)
	}
	if failed(resp) || !x.transport.isJSONRPC() {
		c.classify(resp.StatusCode, resp.Header, peek(resp))
	}
}

func failed(resp *http.Response) bool { return resp.StatusCode >= http.StatusBadRequest }

// maxPeek is how much of the body of an error is read before the caller gets it. The rest may take long.
const maxPeek = 64 << 10

// peek reads the body of an error and puts it back. It returns nil if it is longer than maxPeek.
func peek(resp *http.Response) []byte {
	if !failed(resp) || !isJSON(resp.Header) || resp.ContentLength > maxPeek {
		return nil
	}
	start, err := io.ReadAll(io.LimitReader(resp.Body, maxPeek+1))
	rest := io.Reader(resp.Body)
	if err != nil {
		rest = failingReader{err}
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start), rest), resp.Body}
	if len(start) > maxPeek {
		return nil
	}
	return start
}

// failingReader is the rest of a body that cannot be read.
type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// isJSON reports whether a body is JSON, such as application/json or application/problem+json.
func isJSON(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
}

// watch has what the caller reads of a response looked at, if that can matter: for what the request has cost,
// and for the errors of JSON-RPC, which come with a status of 200.
func (x *exchange) watch(resp *http.Response) {
	most := int64(0)
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols:
	case x.transport.Settle != nil:
		most = x.transport.maxBody()
	case x.transport.isJSONRPC() && isJSON(resp.Header):
		most = maxRefusal
	}
	if most == 0 {
		x.read(resp, nil, partly)
		return
	}
	resp.Body = &watchedBody{
		ReadCloser: resp.Body, most: most, length: resp.ContentLength, json: isJSON(resp.Header),
		done: func(body []byte, known extent) { x.read(resp, body, known) },
	}
}

// read ends the exchange when the body of the response was read, as far as it is known.
func (x *exchange) read(resp *http.Response, body []byte, known extent) {
	if x.transport.isJSONRPC() && !failed(resp) {
		switch known {
		case whole:
			x.controller.classify(resp.StatusCode, resp.Header, body)
		case tooLong: // it is no error, which are short
			x.controller.RecordSuccess()
		}
	}
	if !x.transport.settlesLater() {
		return
	}
	if table := x.transport.Account.Costs(); table != nil && table.failedFree && failed(resp) {
		x.settle(x.reserved.Cancel)
		return
	}
	if x.transport.Settle != nil && known == whole {
		if used, ok := x.transport.Settle(resp, body); ok {
			x.settle(func(ctx context.Context) (weir.Settled, error) { return x.reserved.Settle(ctx, used) })
			return
		}
	}
	x.commit()
}

// extent is how much is known of a body.
type extent int

const (
	partly  extent = iota // it broke off or was closed before its end
	whole                 // all of it
	tooLong               // none, because it is longer than the copy may be
)

// watchedBody is a body of which a copy is kept, up to a length. Done is called once: when it has been read to
// its end, or is closed. As with other bodies, Close may be called during a Read.
//
// A json.Decoder reads no further than the end of a value. With HTTP/2 and chunked HTTP/1.1 the end of the body often
// comes only with the next Read, so Close takes a copy for the whole body if it looks complete.
type watchedBody struct {
	io.ReadCloser // set once, like the next four
	most          int64
	length        int64 // negative if it is not known
	json          bool
	done          func(body []byte, known extent)

	mu    sync.Mutex // guards the fields below
	copy  bytes.Buffer
	over  bool // it is longer than most
	ended bool
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.keep(p[:n])
	if err != nil {
		b.end(func([]byte) bool { return err == io.EOF })
	}
	return n, err
}

func (b *watchedBody) Close() error {
	err := b.ReadCloser.Close()
	b.end(b.isComplete)
	return err
}

// isComplete reports whether what was read of a body is all of it, as far as that can be told without another Read.
func (b *watchedBody) isComplete(body []byte) bool {
	return int64(len(body)) == b.length || b.length < 0 && b.json && isComplete(body)
}

// isComplete reports whether a text is a whole object or array of JSON. Of a number nobody knows whether it goes on.
func isComplete(text []byte) bool {
	text = bytes.TrimSpace(text)
	if len(text) < 2 {
		return false
	}
	switch ends := [2]byte{text[0], text[len(text)-1]}; ends { // which is quicker to see than that it is valid
	case [2]byte{'{', '}'}, [2]byte{'[', ']'}:
		return json.Valid(text)
	}
	return false
}

// keep copies what was read.
func (b *watchedBody) keep(part []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.ended || b.over:
	case int64(b.copy.Len()+len(part)) > b.most:
		b.over, b.copy = true, bytes.Buffer{}
	default:
		b.copy.Write(part)
	}
}

// end calls done, the first time. IsWhole reports whether the copy is all of the body.
func (b *watchedBody) end(isWhole func(body []byte) bool) {
	b.mu.Lock()
	was, over := b.ended, b.over
	b.ended = true // the copy does not change any more
	b.mu.Unlock()
	switch {
	case was:
	case over:
		b.done(nil, tooLong)
	case isWhole(b.copy.Bytes()):
		b.done(b.copy.Bytes(), whole)
	default:
		b.done(b.copy.Bytes(), partly)
	}
}
