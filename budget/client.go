package budget

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
)

// Caller is what clients of JSON-RPC have, for example rpc.Client of go-ethereum.
type Caller interface {
	CallContext(ctx context.Context, result any, method string, args ...any) error
}

// Client is a Caller that charges an account for each call, before it is made. It is for connections that no
// Transport sees, such as WebSockets. For HTTP use a Transport, which knows more: batches, and what was not
// sent.
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
// Controller.WaitForBudget does. If the provider refuses the call as one too many, the account waits.
func (c *Client) CallContext(ctx context.Context, result any, method string, args ...any) error {
	controller, err := c.account.Controller(cmp.Or(ClassOf(ctx), c.class))
	if err != nil {
		return err
	}
	if err := controller.WaitForBudget(ctx, Method(method)); err != nil {
		return err
	}
	err = c.caller.CallContext(ctx, result, method, args...)
	switch r, answered := refusalOfError(err); {
	case err == nil, answered:
		controller.heed(r)
	}
	return err
}

// refusalOfError returns the refusal that the error of a call is. Answered is whether the error is the
// provider's at all. Clients give errors of JSON-RPC the methods ErrorCode and ErrorData.
func refusalOfError(err error) (r refusal, answered bool) {
	var coded interface{ ErrorCode() int }
	if !errors.As(err, &coded) {
		return refusal{}, false
	}
	var data []byte
	var detailed interface{ ErrorData() any }
	if errors.As(err, &detailed) {
		data, _ = json.Marshal(detailed.ErrorData()) // without data there is no time
	}
	return refusalOfCode(int64(coded.ErrorCode()), data), true
}
