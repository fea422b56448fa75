package guard

import (
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// Config says what callers may do. The zero value limits nothing. It is data, but for Hooks.
type Config struct {
	// Mode is the mode of all limits without their own: Enforce (the default), Shadow, or Off,
	// which is the kill switch: every request is admitted and nothing is counted.
	Mode ruleset.Mode

	// Rollout is the share of subjects for whom limits are enforced; for the others they are in
	// shadow. It is the same subjects at every endpoint and on every node. The default is all.
	Rollout ruleset.Share

	// Identity says how callers are identified.
	Identity Identity

	// BeforeAuth is the stage before authentication.
	BeforeAuth BeforeAuth

	// Default has the limits of endpoints that no pattern matches. Its Pattern is ignored.
	// Without limits, such endpoints are not limited. All of them share one count.
	Default Endpoint

	// Endpoints have limits of their own. The most specific pattern applies.
	Endpoints []Endpoint

	// Plans multiply the limits of all endpoints for subjects with a plan.
	Plans []Plan

	// InFlight is how many requests of one subject may be handled at once in this process. The
	// default, 0, is no such limit.
	InFlight int64

	// Penalties reduce the rates of subjects that keep exceeding their limits. The default is
	// none.
	Penalties *Penalties

	// Abuse reports subjects that send many requests in a short time. The default is none.
	Abuse *Abuse

	// Subscriptions limits long-lived streams. The default is no limit.
	Subscriptions *Subscriptions

	// Exemptions are subjects to whom the limits of some endpoints do not apply. There are none
	// by default.
	Exemptions []Exemption

	// Measure records, for each endpoint, which burst its subjects would have needed:
	// Guard.Suggestions. It costs another counter for each subject and endpoint.
	Measure bool

	// MaxSubjects bounds what a process remembers of subjects by itself: the counts of Abuse,
	// InFlight and Measure. The default is 100,000 rows. Limits are counted by the limiter, which
	// has its own bound.
	MaxSubjects int

	// Shared says that other processes use the same limiter, so that penalties may begin
	// elsewhere: a process then looks them up again after a second.
	Shared bool

	// Hooks are functions that are called. Guard.Set keeps those of New.
	Hooks Hooks
}

// Hooks are functions of the program that a Guard calls. They must be safe for concurrent use and
// return quickly.
type Hooks struct {
	// Blocked says whether a caller is blocked, and until when, for example by a blocklist. It is
	// called before authentication with the subject of the address, and after it with an
	// identified subject. A zero time means that no end is known.
	Blocked func(Subject) (until time.Time, blocked bool)

	// OnViolation receives violations. A subject's violations of one kind are reported at most
	// once per second (Penalties.Interval). NewLogger(…).Log logs them.
	OnViolation func(Violation)

	// Now returns the time, by default time.Now. It decides whether exemptions and overrides have
	// expired.
	Now func() time.Time
}

// BeforeAuth has the limits before authentication. They apply to every request, also to those of
// exempt subjects and of disabled endpoints.
type BeforeAuth struct {
	// PerIP are limits for each address. They are not shown to clients.
	PerIP []ruleset.Limit

	// InFlight is how many requests the process handles at once. The default is no limit.
	InFlight int64

	// InFlightPerIP is how many requests of one address the process handles at once. The default
	// is no limit.
	InFlightPerIP int64
}

// Endpoint has the limits of the endpoints that match a pattern.
type Endpoint struct {
	// Pattern is an HTTP method and path ("POST /v1/users/{id}"), a path for all methods
	// ("/v1/users/{id}"), an RPC procedure ("/river.StreamService/CreateStream") or a method of
	// JSON-RPC ("eth_getLogs"). {name} stands for one segment of a path, and * at the end for
	// any rest ("/river.StreamService/*", "eth_*").
	Pattern string

	// Name is the name of the policy in headers, metrics and the store: 1 to 64 letters, digits
	// or -_. The counts belong to it. The default is made of Pattern, such as
	// "river.StreamService.CreateStream".
	Name string

	// Disabled means that neither limits of its own nor the default ones apply. The stage before
	// authentication and InFlight still do.
	Disabled bool

	// Limits apply together. By is the subject by default, "ip" the client's address, and
	// otherwise an attribute of the request; requests without it share one count.
	Limits []ruleset.Limit

	// Mode is the mode of limits without their own. The default is that of Config.
	Mode ruleset.Mode

	// Rollout is this endpoint's. The default is that of Config.
	Rollout ruleset.Share

	// Plans are other limits for subjects with a plan. They have precedence over Config.Plans.
	Plans []ruleset.Plan

	// Overrides are other limits for some subjects, such as "user:alice" or "key:partner-*", or
	// for all ("*"). With Until they are grace periods.
	Overrides []ruleset.Override

	// Cost is what a request costs. The default is 1.
	Cost int64

	// Count says which requests count. The default is all.
	Count Count

	// Settle allows handlers to set the actual cost with Settle: Cost is reserved, and the rest is
	// refunded.
	Settle bool

	// Timeout is how long a request that is counted by its outcome may take; after that it counts
	// in full. The default is a minute, the most an hour.
	Timeout time.Duration
}

// Count says which requests count.
type Count uint8

// Which requests count.
const (
	CountAll      Count = iota // every request that is admitted
	CountFailures              // those that failed; a unit is held until the outcome is known
)

// Plan multiplies limits for the subjects that have it.
type Plan struct {
	Name string

	// Multiplier is for rate and burst, at least 0.01 and at most 1,000,000. Results are
	// rounded, to no less than 1.
	Multiplier float64
}

// Penalties reduce the rates of subjects that keep exceeding their limits.
//
// A refusal by an endpoint's limit adds one to the subject's score, at most once per Interval. The
// score falls by After per Within. When it reaches After, the subject's rates are multiplied by
// Multiplier for a time of For; bursts stay as they are, and so do limits by an attribute that others
// share. A penalty is neither extended nor
// increased while it lasts, and refusals do not count then, so that it ends on time however the
// subject behaves. Violations in shadow have a score and penalties of their own, which reduce only
// the rates of limits in shadow.
type Penalties struct {
	After      int64         // the score at which a penalty begins; the default is 5
	Within     time.Duration // the default is a minute
	Interval   time.Duration // the default is a second
	Multiplier float64       // between 0 and 1, both excluded; the default is 0.5
	For        time.Duration // the default is 5 minutes

	// Sustained is how many penalties within SustainedWithin are reported as a Sustained
	// violation. The defaults are 3 and an hour.
	Sustained       int64
	SustainedWithin time.Duration
}

// Abuse reports subjects that send Requests within Per, also if their limits allow that. It
// refuses nothing, but adds to the score of Penalties. It counts in this process, and only requests to
// which limits of an endpoint apply: neither those to disabled endpoints nor exempt ones.
type Abuse struct {
	Requests int64         // the default is 60
	Per      time.Duration // the default is 2 seconds
}

// Subscriptions limits long-lived streams, each with a number of items.
type Subscriptions struct {
	PerSubject int64      // open subscriptions of a subject; the default is 10
	ItemsEach  int64      // items of one subscription; the default is 100
	ItemsTotal int64      // items of all subscriptions of a subject; the default is 500
	Create     weir.Limit // new subscriptions of a subject; the default is 5 per minute
	Modify     weir.Limit // calls that add items; the default is 30 per minute
}

// Exemption is a subject to whom the limits of some endpoints do not apply until a given time. The
// stage before authentication applies all the same.
type Exemption struct {
	Subject   string    // such as "user:notifications"; it must be verified, so no "ip:" and no "unknown"
	Endpoints []string  // patterns as in Endpoint.Pattern; required
	Until     time.Time // required
}
