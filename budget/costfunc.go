package budget

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/weirlimit/weir/internal/jsonrpc"
)

// CostFunc says what a request costs, before it is sent. The body is the whole of the request's body; the
// function changes neither. After an error the request is not sent and nothing is charged.
type CostFunc func(r *http.Request, body []byte) (Amounts, error)

// SettleFunc says what a request cost, after its response arrived. It returns false if it cannot tell; then
// what was charged before stays charged. Units that are not in the amounts cost nothing. The function changes
// neither the response nor the body, which is the whole of the response's.
type SettleFunc func(r *http.Response, body []byte) (Amounts, bool)

// FixedCost returns the function of requests that all cost the same. Negative amounts are an error of each
// request.
func FixedCost(a Amounts) CostFunc {
	a = a.clone()
	return func(*http.Request, []byte) (Amounts, error) {
		for _, unit := range slices.Sorted(maps.Keys(a)) {
			if a[unit] < 0 {
				return nil, fmt.Errorf("budget: a cost must not be negative: %d of %q", a[unit], unit)
			}
		}
		return a.clone(), nil
	}
}

// JSONRPC returns the function of JSON-RPC requests: a call costs what its method costs, a batch what Batch
// says. A notification costs as much as a call, since the server executes it too. A body that is not JSON-RPC
// or is ambiguous is an error.
func (t *Table) JSONRPC() CostFunc {
	return func(_ *http.Request, body []byte) (Amounts, error) {
		req, err := jsonrpc.Parse(body)
		if err != nil {
			return nil, fmt.Errorf("budget: the cost of a request: %w", err)
		}
		if !req.Batch {
			return t.Cost(req.Calls[0].Method)
		}
		methods := make([]string, len(req.Calls))
		for i, call := range req.Calls {
			methods[i] = call.Method
		}
		return t.Batch(methods)
	}
}

// Settle returns the function by the vendor's rule for requests that fail. If they are free, a response with
// a status of 400 or more cost nothing. Of other responses the function cannot tell more than the cost said.
func (t *Table) Settle() SettleFunc {
	return func(r *http.Response, _ []byte) (Amounts, bool) {
		if !t.failedFree || r.StatusCode < http.StatusBadRequest {
			return nil, false
		}
		return t.nothing(), true
	}
}
