package budget

import (
	"fmt"
	"net/http"

	"github.com/weirlimit/weir/internal/jsonrpc"
)

// CostFunc says what a request costs, before it is sent. The body is the whole of the request's body; the
// function changes neither. After an error the request is not sent and nothing is charged.
type CostFunc func(r *http.Request, body []byte) (Cost, error)

// SettleFunc says what a request has cost, after its response arrived. It returns false if it cannot tell; then
// what was charged before stays charged. The body is the whole of the response's; the function changes
// neither.
type SettleFunc func(r *http.Response, body []byte) (Cost, bool)

// FixedCost returns the function of requests that all cost the same.
func FixedCost(c Cost) CostFunc {
	return func(*http.Request, []byte) (Cost, error) { return c, nil }
}

// JSONRPC is the CostFunc of JSON-RPC requests: a call costs what its method costs, a batch what the
// vendor's rule says. A notification costs as much as a call, since the server executes it too. A body that
// is not JSON-RPC or is ambiguous is an error.
func JSONRPC(_ *http.Request, body []byte) (Cost, error) {
	req, err := jsonrpc.Parse(body)
	if err != nil {
		return Cost{}, fmt.Errorf("budget: the cost of a request: %w", err)
	}
	if !req.Batch {
		return Method(req.Calls[0].Method), nil
	}
	methods := make([]string, len(req.Calls))
	for i, call := range req.Calls {
		methods[i] = call.Method
	}
	return Batch(methods...), nil
}
