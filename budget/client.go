package budget

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
)

// Caller is what clients of JSON-RPC have, for example rpc.Client of go-ethereum.
type Caller interface {
	CallContext(ctx context.Context, result any, method string, args ...any) error
}

// Client is a Caller that charges an account for each call, before it is made. It is for connections that no
// Transport sees, such as WebSockets. For HTTP use a Transport, which knows more: batches, and what was not
// sent. What a subscription delivers is not charged, only the call that subscribes.
type Client struct {
	caller  Caller
	account *Account
	class   string
}

// NewClient returns a client that charges an account, for a class of work if the context of a call has none,
// see WithClass. "" is the class with the least guaranteed share.
func NewClient(caller Caller, a *Account, class string) (*Client, error) {
	if _, err := a.Controller(class); err != nil {
		return nil, err
	}
	return &Client{caller: caller, account: a, class: class}, nil
}

// CallContext calls a method as soon as the budget has room for what it costs, and fails as
// Controller.WaitForBudget does. If the provider refuses the call, the account does what Controller.RecordRefusal
// says. A refused call remains charged.
func (c *Client) CallContext(ctx context.Context, result any, method string, args ...any) error {
	controller, err := c.account.Controller(cmp.Or(ClassOf(ctx), c.class))
	if err != nil {
		return err
	}
	if err := controller.WaitForBudget(ctx, Method(method)); err != nil {
		return err
	}
	err = c.caller.CallContext(ctx, result, method, args...)
	if body, answered := responseOf(err); answered {
		controller.classify(http.StatusOK, nil, body)
	}
	return err
}

// responseOf returns the response to a call as far as Classify needs it. Answered is false if the error is not
// the provider's. Clients give errors of JSON-RPC the methods ErrorCode and ErrorData.
func responseOf(err error) (body []byte, answered bool) {
	if err == nil {
		return nil, true
	}
	var coded interface {
		error
		ErrorCode() int
	}
	if !errors.As(err, &coded) {
		return nil, false
	}
	failure := map[string]any{"code": coded.ErrorCode(), "message": coded.Error()}
	var detailed interface{ ErrorData() any }
	if errors.As(err, &detailed) {
		data, _ := json.Marshal(detailed.ErrorData())
		failure["data"] = json.RawMessage(data) // null if it was not JSON
	}
	body, _ = json.Marshal(map[string]any{"error": failure})
	return body, true
}
