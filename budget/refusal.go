package budget

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/weirlimit/weir/internal/jsonrpc"
)

// RefusalClass is what a refusal means, and so what helps against it.
type RefusalClass int

// The classes. Each takes an account out of use for longer than the one before.
const (
	// Overloaded means that the provider has too much to do, or that the traffic grows too fast for it.
	// All accounts with the provider should send less, and more again only slowly.
	Overloaded RefusalClass = iota + 1

	// RateLimited means that the account has used what it may use in a second, a minute or an hour.
	RateLimited

	// QuotaExhausted means that the account has used up an amount that comes back at a certain time: the
	// next day, week or month.
	QuotaExhausted

	// AccessDenied means that money is missing or the credentials are not accepted: the account is of no
	// use until an operator acts.
	AccessDenied
)

// String returns a short name in lower case: overloaded, rate, quota or denied.
func (c RefusalClass) String() string {
	switch c {
	case Overloaded:
		return "overloaded"
	case RateLimited:
		return "rate"
	case QuotaExhausted:
		return "quota"
	case AccessDenied:
		return "denied"
	}
	return fmt.Sprintf("RefusalClass(%d)", int(c))
}

// Refusal is a provider's answer that it has not done what was asked, for a reason that lies in the account or
// the provider and not in the request.
type Refusal struct {
	// Class is what the refusal means.
	Class RefusalClass

	// Wait is for how long the provider wants no calls, 0 if it does not say. It is at most 366 days; see Pause. For
	// AccessDenied it is when access comes back even if nobody acts.
	Wait time.Duration

	// Unit is what was exceeded, named as in View, for example "tokens". It is "" if the provider does not
	// say. The others may have room.
	Unit string

	// Reason is what the refusal was recognized by: a code such as "insufficient_quota", or "status 403". It
	// is never a text from the response, so it can be logged and be the label of a metric.
	Reason string
}

// maxPause is the longest pause after a refusal, whatever the provider says: a quota is back within a month.
const maxPause = 32 * 24 * time.Hour

// Pause returns for how long calls pause because of the refusal: Wait, but no longer than is plausible, which is 32 days.
// After a longer time, which a broken clock or a proxy can say, the provider is tried again.
func (r Refusal) Pause() time.Duration { return min(r.Wait, maxPause) }

// maxRefusal is the length of the longest body that Classify looks at: errors are short, but the response to a batch may have
// one among others.
const maxRefusal = 1 << 20

// Classify reports whether a response is a refusal, and which. The body may be nil if it is not known; one of
// more than 1 MiB, or one that is no JSON object or array, is ignored. For a message of a WebSocket the
// status is http.StatusOK and the header nil.
//
// An error in the body counts if its code is known; otherwise the status does:
//
//   - 429 is RateLimited, 503 and 529 are Overloaded, and 401, 402 and 403 are AccessDenied,
//   - except that 403 with Retry-After or nothing remaining is RateLimited, as with GitHub.
//
// Below 400 only errors of JSON-RPC count. Errors that are known to have nothing to do with the account are no
// refusals, whatever the status.
//
// The responses of a batch can differ. Then the class counts that takes the account out of use for longest:
// AccessDenied before QuotaExhausted, RateLimited and Overloaded, with the longest Wait of that class. The rest shows
// with the next call, which a pool makes with another account. Were it the other way round, a pool would come back
// to an account without money again and again.
//
// Wait is what the error or Retry-After says, the longer of the two, or else the reset of a limit of
// which nothing remains. For AccessDenied headers do not count. A header that says when a limit is full again is
// no reason to wait: units come back before. See View.Wait and Account.Learn.
func Classify(status int, h http.Header, body []byte, now time.Time) (Refusal, bool) {
	r, known := classifyBody(status, body, now)
	if !known {
		r = classifyStatus(status, h, now)
	}
	if r.Class == 0 {
		return Refusal{}, false
	}
	r.addHeader(h, now)
	return r, true
}

// classifyStatus returns the refusal that a status is, with class 0 if it is none.
func classifyStatus(status int, h http.Header, now time.Time) Refusal {
	class := RefusalClass(0)
	switch status {
	case http.StatusTooManyRequests:
		class = RateLimited
	case http.StatusServiceUnavailable, statusOverloaded:
		class = Overloaded
	case http.StatusUnauthorized, http.StatusPaymentRequired:
		class = AccessDenied
	case http.StatusForbidden:
		class = AccessDenied
		if _, said := RetryAfter(h, now); said || len(exhausted(h, now)) > 0 {
			class = RateLimited
		}
	default:
		return Refusal{}
	}
	return Refusal{Class: class, Reason: "status " + strconv.Itoa(status)}
}

// statusOverloaded is Anthropic's status while it is overloaded.
const statusOverloaded = 529

// addHeader adds what the header says about the time and the unit.
func (r *Refusal) addHeader(h http.Header, now time.Time) {
	if r.Class == AccessDenied { // waiting does not help, whatever a proxy says
		return
	}
	wait, said := RetryAfter(h, now)
	r.Wait = max(r.Wait, wait)
	if r.Class != RateLimited {
		return
	}
	views := exhausted(h, now)
	for _, v := range views {
		if !said {
			r.Wait = max(r.Wait, v.MoreAfter)
		}
	}
	if n := len(views); r.Unit == "" && n > 0 && views[0].Unit == views[n-1].Unit { // they are sorted
		r.Unit = views[0].Unit
	}
}

// exhausted returns the views of limits of which nothing remains.
func exhausted(h http.Header, now time.Time) []View {
	var none []View
	for _, v := range ParseView(h, now) {
		if v.Remaining == 0 {
			none = append(none, v)
		}
	}
	return none
}

// errorMember is in each response of JSON-RPC that is an error.
var errorMember = []byte(`"error"`)

// classifyBody returns the gravest refusal among the errors of a body. Known is whether any of them is
// known; if it is known to be no refusal, the class is 0.
func classifyBody(status int, body []byte, now time.Time) (gravest Refusal, known bool) {
	if len(body) > maxRefusal || status < http.StatusBadRequest && !bytes.Contains(body, errorMember) {
		return Refusal{}, false
	}
	errs, err := jsonrpc.Errors(body)
	if err != nil {
		return Refusal{}, false
	}
	for _, e := range errs {
		if status < http.StatusBadRequest && e.Code == 0 {
			continue
		}
		r, ok := classifyError([]byte(e.Raw), now)
		if ok && (!known || r.graver(gravest)) {
			gravest = r
		}
		known = known || ok
	}
	return gravest, known
}

func (r Refusal) graver(other Refusal) bool {
	return r.Class > other.Class || r.Class == other.Class && r.Wait > other.Wait
}
