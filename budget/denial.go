package budget

import (
	"net/http"
	"time"

	"github.com/weirlimit/weir"
)

// Denial is that a provider does not let an account in: money is missing or the credentials are not
// accepted.
type Denial struct {
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"` // as in Refusal, for example "insufficient_quota" or "status 401"
}

// RecordRefusal does what helps against a refusal, for the whole account:
//
//   - RateLimited, QuotaExhausted and Overloaded let it pause for as long as the provider says and is plausible, see
//     Refusal.Pause, or else as RecordFailure does. A quota may be back only next month: give calls a deadline, so
//     that they fail instead of waiting for that. EndCooldown ends the pause.
//   - AccessDenied lets nothing wait. Only an operator could end that, and the provider's answer says more than
//     a call that hangs. It is logged as an error, once, and is in Usage until a call succeeds.
//
// A negative Wait lets nothing pause: the refusal is counted, and the caller knows that it says nothing new.
//
// A refused call remains charged. Where the provider does not count it, the budget is a little smaller than need be
// while it refuses.
func (c *Controller) RecordRefusal(r Refusal) {
	a := c.account
	a.mu.Lock()
	a.refused[r.Class.String()]++
	a.mu.Unlock()
	switch {
	case r.Class == AccessDenied:
		a.deny(r.Reason)
	case r.Wait == 0:
		c.RecordFailure()
	default:
		a.pause(r)
	}
}

// pause lets the account pause because of a refusal. It warns if the provider wants a longer pause than is plausible, at
// the first of several refusals.
func (a *Account) pause(r Refusal) {
	if d := r.Pause(); d < r.Wait && a.Cooldown() == 0 {
		a.config().Logger.Warn("budget: the provider wants a longer pause than is plausible; it will be tried again before", "account", a.name, "reason", r.Reason, "wants", r.Wait, "pause", d)
	}
	a.Cool(r.Pause())
}

// classify records what a response is: a refusal, a success, or an error that is neither.
func (c *Controller) classify(status int, h http.Header, body []byte) {
	r, refused := Classify(status, h, body, c.account.wallClock())
	switch {
	case refused:
		c.RecordRefusal(r)
	case status < http.StatusBadRequest:
		c.RecordSuccess()
	}
}

// RecordSuccess notes that the provider has done what was asked: it ends a series of failures, and a denial.
func (c *Controller) RecordSuccess() {
	c.account.refusals.Success()
	if c.account.Denied() != nil {
		c.account.denied.Store(nil)
	}
}

// Denied returns the denial of access if there is one: the provider has refused a call with AccessDenied, and none
// has succeeded since.
func (a *Account) Denied() *Denial { return a.denied.Load() }

// logDenialsEvery is how long the same denial is not logged again. If only some calls are denied, those of one
// method for example, denials end and begin all the time.
const logDenialsEvery = time.Minute

// deny notes a denial, and logs it if it is new.
func (a *Account) deny(reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d := a.denied.Load(); d != nil && d.Reason == reason {
		return
	}
	a.denied.Store(&Denial{Since: a.wallClock().UTC(), Reason: reason})
	now := a.clock()
	if a.logged.reason == reason && now.Sub(a.logged.at) < logDenialsEvery {
		return
	}
	a.logged = loggedDenial{reason, now}
	a.config().Logger.Error("budget: the provider denies access: check the credentials and the payments", "account", a.name, "reason", reason)
}

// loggedDenial is the denial that was logged last.
type loggedDenial struct {
	reason string
	at     weir.Instant
}
