package mockrpc

import (
	"maps"
	"net/http"
	"slices"
	"time"
)

// The classes of refusals in Stats, as in budget.RefusalClass. Failed is what is no refusal: a reset, garbage,
// or a status that says nothing about the account.
const (
	classRate       = "rate"
	classQuota      = "quota"
	classDenied     = "denied"
	classOverloaded = "overloaded"
	classFailed     = "failed"
)

// refusal is an answer as a vendor gives it.
type refusal struct {
	class   string
	status  int
	code    int // of JSON-RPC; 0 if the message is the whole body
	message string
	event   int    // Infura's
	details string // Infura's
}

// refusals are the answers that vendors publish, or that were recorded.
var refusals = map[string]refusal{
	"rate": {
		class: classRate, status: http.StatusTooManyRequests, code: 429,
		message: "Your app has exceeded its compute units per second capacity. If you have retries enabled, you can safely ignore this message. If not, check out https://docs.alchemy.com/reference/throughput",
	},
	"monthly-capacity": { // Alchemy
		class: classDenied, status: http.StatusTooManyRequests, code: 429,
		message: "Monthly capacity limit exceeded. Visit https://dashboard.alchemy.com/settings/billing to upgrade your scaling policy for continued service.",
	},
	"daily-quota": { // Infura
		class: classQuota, status: http.StatusPaymentRequired, code: 402, event: -33000, message: "Payment Required",
		details: "You have reached your daily credit limit. To continue making requests, upgrade your plan or purchase additional credits",
	},
	"unpaid":       {class: classDenied, status: http.StatusPaymentRequired, code: 402, message: "Payment Required"},
	"past-due":     {class: classDenied, status: http.StatusForbidden, message: "Endpoint Disabled"}, // QuickNode
	"unauthorized": {class: classDenied, status: http.StatusUnauthorized, code: -32600, message: "Must be authenticated!"},
	"overloaded":   {class: classOverloaded, status: http.StatusServiceUnavailable, message: "Service Unavailable"},
}

// callLimit is the refusal of the preset Generic.
var callLimit = refusal{class: classRate, status: http.StatusTooManyRequests, code: 429, message: "Too many requests: the account has exceeded its calls per second or per minute."}

// Refusals returns the names of the answers that a Fault can have.
func Refusals() []string { return slices.Sorted(maps.Keys(refusals)) }

// rateLimit returns what a preset answers to too many calls.
func (c Config) rateLimit() refusal {
	if c.Preset == Alchemy {
		return refusals["rate"]
	}
	return callLimit
}

func (r refusal) err() *callError {
	return &callError{Code: r.code, Message: r.message, Event: r.event, Details: r.details}
}

// classOf returns the class of a status without a body that says more.
func classOf(status int) string {
	switch status {
	case http.StatusTooManyRequests:
		return classRate
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden:
		return classDenied
	case http.StatusServiceUnavailable, 529: // Anthropic's status while it is overloaded
		return classOverloaded
	}
	return classFailed
}

// class returns in which class of Stats the requests of a fault are.
func (f *Fault) class() string {
	switch {
	case f.Refusal != "":
		return refusals[f.Refusal].class
	case f.Garbage || f.Reset:
		return classFailed
	}
	return classOf(f.Status)
}

// seconds rounds up: a client that comes back a fraction too early is refused again.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
