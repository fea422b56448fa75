package budget

import (
	"encoding/json"
	"time"

	"github.com/weirlimit/weir/internal/jsonrpc"
)

// The codes of JSON-RPC errors that mean "too many requests": the status of HTTP, which Alchemy and Infura send,
// QuickNode's two, and Infura's older one, which has other meanings too.
const (
	codeTooMany         = 429
	codePerSecond       = -32007
	codePerMinute       = -32009
	codeLimitOfAnything = -32005
)

// A refusal is what a provider says about too many requests.
type refusal struct {
	refused bool
	wait    time.Duration // 0 if it does not say
}

// refusalOf finds a refusal among the errors of a JSON-RPC response, also in a batch.
func refusalOf(body []byte) (r refusal) {
	errs, err := jsonrpc.Errors(body)
	if err != nil {
		return refusal{}
	}
	for _, e := range errs {
		one := refusalOfCode(e.Code, []byte(e.Data))
		r.refused, r.wait = r.refused || one.refused, max(r.wait, one.wait)
	}
	return r
}

// refusalOfCode returns the refusal that an error with a code and data is. The text of errors decides nothing.
func refusalOfCode(code int64, data []byte) refusal {
	var rate struct {
		Backoff float64 `json:"backoff_seconds"`
		Rate    struct {
			Backoff float64 `json:"backoff_seconds"`
		} `json:"rate"`
	}
	_ = json.Unmarshal(data, &rate) // without data, or with others, there is no time
	seconds := max(0, rate.Backoff, rate.Rate.Backoff)
	wait := time.Duration(min(seconds, maxCooldown.Seconds()) * float64(time.Second))
	switch code {
	case codeTooMany, codePerSecond, codePerMinute:
		return refusal{true, wait}
	case codeLimitOfAnything:
		return refusal{wait > 0, wait}
	}
	return refusal{}
}

// heed lets the account wait after a refusal, and ends a series of them after an answer.
func (c *Controller) heed(r refusal) {
	switch {
	case !r.refused:
		c.RecordSuccess()
	case r.wait > 0:
		c.account.Cool(r.wait)
	default:
		c.RecordFailure()
	}
}
