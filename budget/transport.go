package budget

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Transport is an http.RoundTripper that charges an account for every request that it sends, at the moment
// at which it sends it: redirects and retries too, each once. A request waits until the budget has room for
// it, or fails as Controller.Reserve does.
//
// A request that was provably not sent, because no connection could be made for example, costs nothing,
// if that is known within a minute.
//
// Transport listens to the provider: headers that say what remains are applied as Account.Learn does, and
// responses that Classify takes for a refusal as Controller.RecordRefusal does. So after too many requests all
// those of the account wait; if access is denied they go on, and get the provider's answer. The refused response
// is the caller's; Transport does not repeat requests. A refused request was sent and costs what it costs, even
// if the provider has not executed it, unless failed requests are free in the table of costs.
//
// To classify an error, up to 64 KiB of its body are read before RoundTrip returns, if it is JSON; one that is longer is
// classified by its status. The caller gets all of it nevertheless. Responses of JSON-RPC with a status of 200 are classified when the caller has read them:
// to the end of the body, or to the end of a value of JSON and then called Close, as with a json.Decoder.
//
// Set the fields before the first use. A Transport is safe for concurrent use.
type Transport struct {
	// Account is charged. It is required.
	Account *Account

	// Class is the class of work of requests whose context has none, see WithClass. The default is the
	// class with the least guaranteed share.
	Class string

	// Base sends the requests. The default is http.DefaultTransport.
	Base http.RoundTripper

	// Cost says what a request costs. The default is JSONRPC if the account has a table of costs, and
	// otherwise one unit of everything that the account counts.
	Cost CostFunc

	// Settle says what a request has cost when its response has been read, for costs that are known only
	// afterwards. Until then what Cost says is reserved. The default is that Cost is right.
	Settle SettleFunc

	// Hold is how long a response may take before its reservation counts as used. It matters only with
	// Settle. The default is 10 minutes, the maximum an hour.
	Hold time.Duration

	// MaxBody is the greatest number of bytes of a request that Cost is given; requests with longer
	// bodies are refused. It also bounds the responses that Settle is given; if one is longer, what was
	// reserved counts as used. The default is 5 MiB.
	MaxBody int64
}

// ErrBodyTooLong is wrapped by the error of a Transport for a request whose body exceeds MaxBody.
var ErrBodyTooLong = errors.New("budget: the body of the request is too long")

const (
	defaultHold    = 10 * time.Minute
	holdToSend     = time.Minute // longer than a connection takes to fail
	defaultMaxBody = 5 << 20
)

type classKey struct{}

// WithClass returns a context for requests of a class of work.
func WithClass(ctx context.Context, class string) context.Context {
	return context.WithValue(ctx, classKey{}, class)
}

// ClassOf returns the class of WithClass, "" if there is none.
func ClassOf(ctx context.Context) string {
	class, _ := ctx.Value(classKey{}).(string)
	return class
}

// RoundTrip charges the request and sends it.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.Account == nil {
		return nil, noAccount(r)
	}
	body, err := t.readBody(r)
	if err != nil {
		return nil, err
	}
	cost, err := t.cost(r, body)
	if err != nil {
		return nil, err
	}
	c, err := t.Account.Controller(cmp.Or(ClassOf(r.Context()), t.Class))
	if err != nil {
		return nil, err
	}
	reserved, err := c.Reserve(r.Context(), t.hold(), cost)
	if err != nil {
		return nil, err
	}
	x := &exchange{transport: t, controller: c, cost: cost, reserved: reserved, ctx: r.Context()}
	return x.finish(t.base().RoundTrip(x.sendable(r, body)))
}

// noAccount closes the body of a request, as a RoundTripper must, and returns the error of a Transport that has no account.
func noAccount(r *http.Request) error {
	if r.Body != nil {
		r.Body.Close()
	}
	return errors.New("budget: the Transport has no Account to charge: set it")
}

// readBody reads the body of a request, nil if it has none.
func (t *Transport) readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	defer r.Body.Close()
	most := t.maxBody()
	if r.ContentLength > most {
		return nil, fmt.Errorf("%w: it has %d bytes, and MaxBody is %d", ErrBodyTooLong, r.ContentLength, most)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, most+1))
	if err == nil && int64(len(body)) > most {
		err = fmt.Errorf("%w: MaxBody is %d bytes", ErrBodyTooLong, most)
	}
	return body, err
}

// withBody returns a copy of a request with a body that was read, which can be sent again.
func withBody(ctx context.Context, r *http.Request, body []byte) *http.Request {
	r = r.Clone(ctx)
	if body == nil {
		return r
	}
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return r
}

func (t *Transport) cost(r *http.Request, body []byte) (Cost, error) {
	switch {
	case t.Cost != nil:
		return t.Cost(r, body)
	case t.isJSONRPC():
		return JSONRPC(r, body)
	}
	return Units(1), nil
}

// isJSONRPC reports whether requests are of JSON-RPC by default.
func (t *Transport) isJSONRPC() bool { return t.Cost == nil && t.Account.Costs() != nil }

func (t *Transport) base() http.RoundTripper {
	if t.Base != nil {
		return t.Base
	}
	return http.DefaultTransport
}

// hold returns how long a request may be reserved. One that is not settled afterwards is only reserved
// until it is sent, and soon counts as used if this process ends before that.
func (t *Transport) hold() time.Duration {
	if !t.settlesLater() {
		return holdToSend
	}
	return cmp.Or(t.Hold, defaultHold)
}

func (t *Transport) maxBody() int64 { return cmp.Or(t.MaxBody, defaultMaxBody) }

// settlesLater reports whether responses say what requests have cost.
func (t *Transport) settlesLater() bool {
	table := t.Account.Costs()
	return t.Settle != nil || table != nil && table.failedFree
}
