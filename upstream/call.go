package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// Call is what a pool must know of a request besides its HTTP form.
type Call struct {
	// Methods are the methods that it calls, several for a batch. The budget's table says what they cost. An
	// endpoint takes the request only if it takes all of them.
	Methods []string

	// Class is the class of work that it is charged for. Accounts that do not have it charge their least urgent.
	Class string

	// Repeatable means that it may be executed twice. Otherwise it is written to at most one endpoint.
	Repeatable bool

	// NoAnswer means that no answer is expected, as for a notification of JSON-RPC. Otherwise an empty one is a failure.
	NoAnswer bool

	// Client is who makes the call, where several share the pool. Each waits in lines of its own, whose heads take turns,
	// and has half of the queue at most. The default is that all are one.
	Client string

	// Pinned is the alias of the only endpoint that can answer, "" if all can.
	Pinned string

	// Body is sent in place of the request's if it is not nil. It must not change any more, and may have any length.
	Body []byte

	// Began is when its handling began, for the time in queue. The default is when Send is called.
	Began time.Time
}

// Reply is a response and where it comes from.
type Reply struct {
	*http.Response

	// Alias is the endpoint that has answered.
	Alias string

	// Limit is the name of the tightest limit, "" if there is none or it is hidden: that of a limit of the endpoint, "limit" if it
	// has no name; or "budget" for the account's main limit, and "budget.month" for another. Decision has what is left of it.
	Limit    string
	Decision weir.Decision

	// Quota is that limit, and Unit what it counts: "" for requests.
	Quota weir.Limit
	Unit  string

	// Queued is how long it took until the request was sent to this endpoint: selection, waiting and failed tries.
	Queued time.Duration

	// Tries is how often it was sent.
	Tries int
}

// LimitedError means that no endpoint could take a request soon enough. It was not sent, unless Tries says so, and
// nothing was charged for it.
type LimitedError struct {
	// Reason is weir.Exhausted if requests do not wait, weir.TooLate, weir.QueueFull or weir.TooCostly.
	Reason weir.Reason

	// RetryAfter is when a request like this one can be taken, if nothing else happens; weir.Never if none ever can.
	RetryAfter time.Duration

	// Alias and Limit are the endpoint that can take it first, and what limits it: the name of a limit as Reply
	// has it, or "cooldown" or "concurrency".
	Alias, Limit string
}

func (e *LimitedError) Error() string {
	if e.RetryAfter == weir.Never {
		return fmt.Sprintf("upstream: %s: no endpoint can ever take the request", e.Reason)
	}
	return fmt.Sprintf("upstream: %s: %s can take the request in %v, limited by %s", e.Reason, e.Alias, e.RetryAfter, e.Limit)
}

// DownError means that there is no endpoint for a request.
type DownError struct {
	// Reasons say why, endpoint by endpoint, as in "alchemy-1: denied (status 401)".
	Reasons []string

	// RetryAfter is when the first of them is tried again, 0 if nobody knows.
	RetryAfter time.Duration

	// Unserved means that no endpoint is configured to take the request, however well it is.
	Unserved bool
}

func (e *DownError) Error() string {
	switch {
	case e.Unserved:
		return "upstream: no endpoint takes this request"
	case len(e.Reasons) == 0:
		return "upstream: no endpoint is available"
	}
	return "upstream: no endpoint is available: " + strings.Join(e.Reasons, "; ")
}

// TryError means that an endpoint has not answered. Its cause is not wrapped, because it contains the URL.
type TryError struct {
	Alias   string
	Reason  string // for example "connection refused"
	Sent    bool   // it may have been sent, and so executed
	Timeout bool   // the endpoint has not answered in time
}

func (e *TryError) Error() string { return fmt.Sprintf("upstream: %s: %s", e.Alias, e.Reason) }

// matches reports whether a method is a pattern, or begins with it if it ends with a *.
func matches(pattern, method string) bool {
	if begin, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(method, begin)
	}
	return pattern == method
}

func matchesAny(patterns []string, method string) bool {
	for _, p := range patterns {
		if matches(p, method) {
			return true
		}
	}
	return false
}

// readOnly are the methods that change nothing on a server, or nothing that matters if it is done twice.
var readOnly = []string{
	"eth_accounts", "eth_blobBaseFee", "eth_blockNumber", "eth_call", "eth_callMany", "eth_chainId", "eth_coinbase", "eth_createAccessList", "eth_estimateGas",
	"eth_feeHistory", "eth_gasPrice", "eth_get*", "eth_maxPriorityFeePerGas", "eth_protocolVersion", "eth_simulateV1", "eth_syncing", "eth_uninstallFilter",
	"eth_newFilter", "eth_newBlockFilter", "eth_newPendingTransactionFilter",
	"net_*", "web3_*", "rpc_modules", "txpool_*", "trace_*", "debug_trace*", "debug_get*", "debug_storageRangeAt", "erigon_get*", "alchemy_get*", "ots_*",
	"sui_get*", "sui_multiGet*", "sui_tryGet*", "suix_get*", "suix_query*", "suix_resolve*", "rpc.discover",
	"getAccountInfo", "getBalance", "getBlock*", "getSignature*", "getTransaction*", "getSlot", "getHealth", "getLatestBlockhash",
}

// notRepeatable are exceptions among these: they return changes since the last call.
var notRepeatable = []string{"eth_getFilterChanges", "trace_rawTransaction"}

// IsRepeatable reports whether a JSON-RPC method may be called twice where once was meant. More are patterns of
// methods that may, too. Of methods that nobody knows the answer is no.
func IsRepeatable(method string, more []string) bool {
	return matchesAny(more, method) || matchesAny(readOnly, method) && !matchesAny(notRepeatable, method)
}

// reasonOf returns a short text for an error of a transport, without the URL that most of them contain.
func reasonOf(err error) string {
	var timeout interface{ Timeout() bool }
	text := err.Error()
	switch {
	case errors.Is(err, errNotJSON):
		return "the answer is not JSON"
	case errors.Is(err, errSwitched):
		return "status 101"
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case strings.Contains(text, "connection refused"):
		return "connection refused"
	case strings.Contains(text, "connection reset"), strings.Contains(text, "broken pipe"):
		return "connection reset"
	case strings.Contains(text, "no such host"):
		return "host not found"
	case strings.Contains(text, "x509:"), strings.Contains(text, "tls:"):
		return "TLS handshake failed"
	case strings.HasSuffix(text, "EOF"):
		return "connection closed"
	}
	return "connection failed"
}
