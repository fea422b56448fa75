package config

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
)

// Guard is who may call which endpoint of a service, and what happens to those who do not stop. /v1/auth
// and weir.v1.GuardService decide by it; docs/guard.md explains it.
type Guard struct {
	// Mode is what happens to a refusal: enforce, shadow to count and only report it, or off, which
	// admits everything and counts nothing. An endpoint may have its own, but not while this is off.
	Mode Mode `yaml:"mode" default:"enforce" example:"shadow"`

	// Rollout is the part of all subjects for whom the limits are enforced. For the others they are
	// in shadow. It is the same subjects at every endpoint and on every node.
	Rollout Percent `yaml:"rollout" default:"100%" example:"10%"`

	// ClientIP is how the address of a client is found.
	ClientIP GuardIP `yaml:"client_ip"`

	// Principal is how trusted proxies say who is authenticated.
	Principal GuardPrincipal `yaml:"principal"`

	// APIKeys are the API keys that the daemon verifies. If it is left out, there are none.
	APIKeys *GuardKeys `yaml:"api_keys"`

	// Subjects are the ways to identify who is charged. The first that is verified counts: the
	// principal, the owner of an API key, the owner of the certificate with which a caller that is
	// no trusted proxy calls the daemon, and at last the address, which need not be listed. The
	// default is all, in this order.
	Subjects []SubjectKind `yaml:"subjects" example:"[principal, api_key, ip]"`

	// BeforeAuth is the stage before authentication. It applies to every request.
	BeforeAuth BeforeAuth `yaml:"before_auth"`

	// Default is for endpoints that no pattern matches. They share one count. If it is left out,
	// they are not limited.
	Default *GuardEndpoint `yaml:"default"`

	// Endpoints are the endpoints with limits of their own, by pattern: an HTTP method and a path
	// (POST /v1/users/{id}), a path for all methods, an RPC procedure, or a method of JSON-RPC
	// (eth_getLogs). {name} matches one segment, a * at the end any rest. The most specific
	// pattern applies. An endpoint may be written as disabled alone.
	Endpoints map[string]GuardEndpoint `yaml:"endpoints"`

	// Plans multiply the limits of all endpoints for the subjects with a plan, by its name.
	Plans map[string]GuardPlan `yaml:"plans" example:"{pro: {multiplier: 10}}"`

	// InFlight is how many requests of one subject may be handled at once by one daemon. The
	// default is no such limit. A decision over HTTP or RPC is short, so that this bounds decisions
	// at once, not requests.
	InFlight int64 `yaml:"in_flight" example:"20" jsonschema:"minimum=1"`

	// Penalties reduce the rates of subjects that keep exceeding their limits. If it is left out,
	// there are none.
	Penalties *Penalties `yaml:"penalties"`

	// Abuse reports subjects that send many requests in a short time. If it is left out, they are
	// not looked for.
	Abuse *Abuse `yaml:"abuse"`

	// Subscriptions limits long-lived streams of the programs that use package guard on the same
	// Redis. The daemon itself opens none.
	Subscriptions *Subscriptions `yaml:"subscriptions"`

	// Exemptions are subjects to whom the limits of some endpoints do not apply for a time. The
	// stage before authentication applies to them.
	Exemptions []Exemption `yaml:"exemptions"`

	// Measure records which burst the subjects of each endpoint would have needed. It costs another
	// counter for each subject and endpoint.
	Measure bool `yaml:"measure" default:"false" example:"true"`

	// MaxSubjects bounds the rows of subjects that the daemon keeps beside the store: for abuse,
	// in_flight and measure. A change of it needs a restart.
	MaxSubjects int `yaml:"max_subjects" default:"100000" example:"1000000" jsonschema:"minimum=1"`
}

// GuardIP is how the address of a client is found.
type GuardIP struct {
	// Header is the header with the address of the client: x-forwarded-for, forwarded or
	// x-real-ip. It is read from trusted_proxies only.
	Header AddressHeader `yaml:"header" default:"x-forwarded-for" example:"forwarded"`

	// TrustedProxies are the proxies whose headers are trusted, as CIDRs such as 10.0.0.0/8, or
	// unix for callers through a socket. Without any, /v1/auth knows no endpoint and no client.
	TrustedProxies []Proxy `yaml:"trusted_proxies" example:"[10.0.0.0/8, unix]"`

	// IPv6Prefix is how many bits of an IPv6 address identify a client, 48 to 128.
	IPv6Prefix int `yaml:"ipv6_prefix" default:"64" example:"56" jsonschema:"minimum=48,maximum=128"`
}

// GuardPrincipal is how trusted proxies say who is authenticated. The proxy must set or remove these
// headers in every request, so that no client can send its own.
type GuardPrincipal struct {
	// Header is the header in which trusted proxies send the principal. The subject is user: and
	// its value. The default is none.
	Header string `yaml:"header" example:"x-user"`

	// PlanHeader is the header in which they send the plan of the principal. The default is none.
	PlanHeader string `yaml:"plan_header" example:"x-plan"`
}

// GuardKeys are API keys that the daemon verifies.
type GuardKeys struct {
	// Header is the header that API keys are in.
	Header string `yaml:"header" default:"x-api-key" example:"x-api-key"`

	// HashesFile is a file with a line for each key: its SHA-256 hash in hexadecimal, the ID of its
	// owner and, optionally, the plan. The subject is key: and the ID.
	HashesFile *Path `yaml:"hashes_file" example:"secrets/api-keys" jsonschema:"required"`
}

// SubjectKind is a way to identify who is charged.
type SubjectKind string

func (SubjectKind) choices() []string { return []string{"principal", "api_key", "certificate", "ip"} }

// BeforeAuth has the limits before authentication. They are not shown to clients.
type BeforeAuth struct {
	// PerIP is a limit of each address, or a list of limits.
	PerIP LimitList `yaml:"per_ip" example:"{rate: 300, per: 1m, burst: 100}"`

	// InFlight is how many requests one daemon handles at once. The default is no limit.
	InFlight int64 `yaml:"in_flight" example:"2000" jsonschema:"minimum=1"`

	// InFlightPerIP is how many requests of one address one daemon handles at once. The default
	// is no limit.
	InFlightPerIP int64 `yaml:"in_flight_per_ip" example:"50" jsonschema:"minimum=1"`
}

func (*BeforeAuth) prepare(n *node) {
	if per := n.child("per_ip"); per != nil {
		per.wrap()
		fillLimits(per)
	}
}

// LimitList is a list of limits. One limit may be written without the list.
type LimitList []Limit

func (LimitList) lone() {}

// wrap makes a mapping a list of one.
func (n *node) wrap() {
	if n.kind == mapping {
		one := *n
		*n = node{kind: sequence, items: []*node{&one}, at: n.at}
	}
}

// GuardEndpoint has the limits of endpoints.
type GuardEndpoint struct {
	// Name is the name of the policy in headers, metrics and the store: 1 to 64 letters, digits or
	// -_. The counts belong to it. The default is made of the pattern: GET /v1/users/{id} becomes
	// GET.v1.users.id.
	Name string `yaml:"name" example:"login"`

	// Disabled means that neither limits of its own nor the default ones apply. The stage before
	// authentication and in_flight still do.
	Disabled Disabled `yaml:"disabled" example:"true"`

	// Limits are what a request must meet together. By is the subject by default, ip the client's
	// address, and otherwise an attribute of the request.
	Limits []Limit `yaml:"limits"`

	// Mode is this endpoint's. The default is that of the guard.
	Mode Mode `yaml:"mode" example:"shadow"`

	// Rollout is this endpoint's. The default is that of the guard.
	Rollout *Percent `yaml:"rollout" example:"12.5%"`

	// Plans are other limits for the subjects with a plan, by its name. They have precedence over
	// the guard's.
	Plans map[string]EndpointPlan `yaml:"plans"`

	// Overrides are other limits for a subject such as user:alice, for those with a prefix such as
	// key:partner-*, or for all (*).
	Overrides map[string]GuardOverride `yaml:"overrides"`

	// Cost is what a request costs. The default is 1.
	Cost int64 `yaml:"cost" example:"5" jsonschema:"minimum=1"`

	// Count is which requests count: all, or failures, of which a unit is held until the outcome is
	// known. Over /v1/auth the outcome stays unknown, and all requests count.
	Count GuardCount `yaml:"count" example:"failures"`

	// Settle means that the cost of a request is known when it has ended: cost is reserved, and the
	// rest is refunded. Over /v1/auth all of it is charged.
	Settle bool `yaml:"settle" example:"true"`

	// Timeout is how long the outcome of a request may take; then it counts in full. The default is
	// 1m, the most 1h.
	Timeout *Duration `yaml:"timeout" example:"30s"`
}

func (GuardEndpoint) shorthand() string { return "disabled" }

// prepare fills in defaults of the limits, and takes the word disabled for true.
func (*GuardEndpoint) prepare(n *node) {
	if d := n.child("disabled"); d != nil && d.kind == scalar && d.text == "disabled" && !d.quoted {
		d.text = "true"
	}
	fillLimits(n.child("limits"))
}

// fillLimits fills in defaults of a list of limits.
func fillLimits(list *node) {
	if list == nil {
		return
	}
	n := newMapping(list.at)
	n.put("limits", list)
	(*Policy)(nil).prepare(n)
}

// Disabled is whether an endpoint has no limits.
type Disabled bool

func (Disabled) hint(text string) string {
	if limits := inLimits(text); limits != "" {
		return "is no endpoint: write " + limits
	}
	return "must be true or false; an endpoint is disabled, or has limits such as {limits: [{rate: 10, per: 1m}]}"
}

// EndpointPlan is the limits of a plan.
type EndpointPlan struct {
	// Limits replace those of the endpoint that have the same name.
	Limits []Limit `yaml:"limits"`
}

// GuardOverride gives a subject other limits.
type GuardOverride struct {
	// Limits replace those of the endpoint that have the same name.
	Limits []Limit `yaml:"limits"`

	// Until is when the override ends. The default is never.
	Until *Until `yaml:"until" example:"2027-06-30"`
}

// GuardCount is which requests count.
type GuardCount string

func (GuardCount) choices() []string { return []string{"all", "failures"} }

// GuardPlan multiplies limits.
type GuardPlan struct {
	// Multiplier is for rate and burst, from 0.01 to 1000000.
	Multiplier Multiplier `yaml:"multiplier" example:"10" jsonschema:"required"`
}

// Multiplier is a number such as 0.5 or 10.
type Multiplier float64

func (m *Multiplier) set(text string) error {
	whole, part, point := strings.Cut(text, ".")
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !isDigits(whole) || point && !isDigits(part) {
		return errors.New("must be a number such as 0.5 or 10")
	}
	*m = Multiplier(f)
	return nil
}

// Penalties reduce the rates of subjects that keep exceeding their limits. A refusal adds one to the score
// of a subject, at most once per interval; the score falls by after per within. A penalty is neither
// extended nor increased while it lasts.
type Penalties struct {
	// After is the score at which a penalty begins.
	After int64 `yaml:"after" default:"5" example:"5" jsonschema:"minimum=1"`

	// Within is the time in which the score falls by after.
	Within Duration `yaml:"within" default:"1m" example:"1m"`

	// Interval is the time in which refusals of a subject count once.
	Interval Duration `yaml:"interval" default:"1s" example:"1s"`

	// Multiplier is what rates are multiplied by, more than 0 and less than 1. Bursts stay as they
	// are.
	Multiplier Multiplier `yaml:"multiplier" default:"0.5" example:"0.5"`

	// For is how long a penalty lasts.
	For Duration `yaml:"for" default:"5m" example:"5m"`

	// Sustained is how many penalties of a subject within sustained_within are reported as
	// sustained.
	Sustained int64 `yaml:"sustained" default:"3" example:"3" jsonschema:"minimum=1"`

	// SustainedWithin is the time in which they are counted.
	SustainedWithin Duration `yaml:"sustained_within" default:"1h" example:"1h"`
}

// Abuse reports subjects that send so many requests within a time, also if their limits allow that. It
// refuses nothing, but adds to the score of penalties. Each daemon counts for itself.
type Abuse struct {
	// Requests is how many requests are abuse.
	Requests int64 `yaml:"requests" default:"60" example:"60" jsonschema:"minimum=1"`

	// Per is the time in which they are counted.
	Per Duration `yaml:"per" default:"2s" example:"2s"`
}

// Subscriptions limits long-lived streams, each with a number of items.
type Subscriptions struct {
	// PerSubject is how many subscriptions of a subject may be open.
	PerSubject int64 `yaml:"per_subject" default:"10" example:"10" jsonschema:"minimum=1"`

	// ItemsEach is how many items one subscription may have.
	ItemsEach int64 `yaml:"items_each" default:"100" example:"100" jsonschema:"minimum=1"`

	// ItemsTotal is how many items all subscriptions of a subject may have.
	ItemsTotal int64 `yaml:"items_total" default:"500" example:"500" jsonschema:"minimum=1"`

	// Create is how often a subject may open one. The default is 5 per minute.
	Create *SubscriptionRate `yaml:"create" example:"{rate: 5, per: 1m}"`

	// Modify is how often a subject may add items. The default is 30 per minute.
	Modify *SubscriptionRate `yaml:"modify" example:"{rate: 30, per: 1m}"`
}

// SubscriptionRate is so many per period.
type SubscriptionRate struct {
	// Rate is the number per period.
	Rate Units `yaml:"rate" example:"5" jsonschema:"required,minimum=1,maximum=9007199254740991"`

	// Per is the period.
	Per Per `yaml:"per" example:"1m" jsonschema:"required"`

	// Burst is how many may come at once after a pause. The default is rate.
	Burst int64 `yaml:"burst" example:"10" jsonschema:"minimum=1"`
}

func (r *SubscriptionRate) limit() weir.Limit {
	if r == nil {
		return weir.Limit{}
	}
	return weir.Limit{Rate: int64(r.Rate), Per: r.Per.Period, Burst: r.Burst}
}

// Exemption is a subject to whom the limits of some endpoints do not apply until a given time.
type Exemption struct {
	// Subject is a verified subject: user:ID for a principal, key:ID for the owner of an API key,
	// cert:NAME for a certificate. Any other text is the ID of a principal. Addresses cannot be
	// exempt, because they can be forged or shared.
	Subject string `yaml:"subject" example:"\"user:notifications\"" jsonschema:"required"`

	// Endpoints are patterns as in endpoints, or * for all.
	Endpoints []string `yaml:"endpoints" example:"[/river.StreamService/SyncStreams]" jsonschema:"required"`

	// Until is when the exemption ends. A date is the instant at which that day begins in UTC.
	Until Until `yaml:"until" example:"2027-06-30" jsonschema:"required"`
}

// key returns the key of the exempt subject.
func (x *Exemption) key() string {
	kind, _, ok := strings.Cut(x.Subject, ":")
	if ok && slices.Contains([]string{"user", "key", "cert", "ip"}, kind) || x.Subject == guard.Unknown || x.Subject == "" {
		return x.Subject
	}
	return "user:" + x.Subject
}

// Until is a date such as 2027-06-30, which is the instant at which that day begins in UTC, or a time
// such as 2027-06-30T18:00:00Z.
type Until struct{ time.Time }

func (u *Until) set(text string) error {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			u.Time = t
			return nil
		}
	}
	return errors.New("must be a date such as 2027-06-30 or a time such as 2027-06-30T18:00:00Z")
}

func (*Until) pattern() (string, string) {
	return `^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2}))?$`, "2027-06-30"
}
