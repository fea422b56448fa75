package budget

import (
	"encoding/json"
	"regexp"
	"strings"
	"time"
)

// A rule says what an error with a certain name means.
type rule struct {
	// name is a code, a type or a reason of the error, see members.names.
	name string

	// message is what the text of the error must match, nil for any text. Rules have it only where one name
	// means several things. It is the beginning of the vendor's text, so words inside a text do not match.
	// Its first group, if it has one, is the instant in UTC at which access comes back.
	message *regexp.Regexp

	// class is what the error means. 0 means that it is no refusal of the account, whatever the status says.
	class RefusalClass

	// timed means that the error is a refusal only if it says for how long.
	timed bool

	// resets returns how long it is until a quota is back. It is for errors that do not say so themselves,
	// although the vendor's documentation does.
	resets func(now time.Time) time.Duration
}

// rules are the errors that are known. Of several that match an error, one with a more specific name counts
// before others, and then the first.
var rules = []rule{
	// Hosts of blockchain nodes, with codes of JSON-RPC. Many send 429.
	{name: "429", message: monthlyCapacity, class: AccessDenied}, // Alchemy, until it is paid for or the month ends
	{name: "429", class: RateLimited},
	{name: "402/-33000", class: QuotaExhausted, resets: untilHour(0)}, // Infura: the credits of a day
	{name: "402", class: AccessDenied},
	{name: "-32005", class: RateLimited, timed: true}, // Infura; without a time it is too many results, or anything
	{name: "-32005", message: dailyCount, class: RateLimited},

	// QuickNode. The same codes mean skipped slots with Solana, transactions that are not permitted with Besu,
	// and a request that is too long with nodes of jsonrpsee.
	{name: "-32007", message: perPeriod, class: RateLimited},
	{name: "-32008", message: perPeriod, class: RateLimited},
	{name: "-32009", message: perPeriod, class: RateLimited},

	{name: "-32017", class: 0}, // OP stack: a limit of the transaction's sender, with whatever account it is sent

	// OpenAI, and the many that answer as it does.
	{name: "insufficient_quota", class: AccessDenied},
	{name: "credit_balance_exhausted", class: AccessDenied},
	{name: "billing_hard_limit_reached", class: AccessDenied},
	{name: "billing_not_active", class: AccessDenied},
	{name: "organization_spend_limit_exceeded", class: AccessDenied},
	{name: "organization_usage_limit_exceeded", class: AccessDenied},
	{name: "project_spend_limit_exceeded", class: AccessDenied},
	{name: "usage_limit_reached", class: QuotaExhausted}, // of a subscription, with the time
	{name: "rate_limit_exceeded", class: RateLimited},
	{name: "slow_down", class: Overloaded},
	{name: "server_is_overloaded", class: Overloaded},

	// Anthropic.
	{name: "enforced_spend_limit_reached", message: regainAccess, class: AccessDenied},
	{name: "enforced_spend_limit_reached", class: AccessDenied},
	{name: "billing_error", class: AccessDenied},
	{name: "invalid_request_error", message: specifiedLimits, class: QuotaExhausted},
	{name: "invalid_request_error", message: creditBalance, class: AccessDenied},
	{name: "rate_limit_error", message: acceleration, class: Overloaded},
	{name: "rate_limit_error", class: RateLimited},
	{name: "overloaded_error", class: Overloaded},

	// Google.
	{name: "API_KEY_INVALID", class: AccessDenied},
	{name: "MODEL_CAPACITY_EXHAUSTED", class: Overloaded},
	{name: perDay, class: QuotaExhausted, resets: untilHour(8)}, // midnight in California, or an hour later
}

// The texts that tell the meanings of a name apart.
var (
	monthlyCapacity = regexp.MustCompile(`^Monthly capacity limit exceeded\.`)
	dailyCount      = regexp.MustCompile(`^daily request count exceeded, request rate limited$`)
	perPeriod       = regexp.MustCompile(`^[0-9]{1,9}/(?:second|minute|hour|day) `)
	creditBalance   = regexp.MustCompile(`^Your credit balance is too low to access the `)
	acceleration    = regexp.MustCompile(`^This request would exceed your organization's (?:\([0-9a-f-]{36}\) )?maximum usage increase rate `)
	specifiedLimits = regexp.MustCompile(`^You have reached your specified (?:workspace )?API usage limits\.(?: You will regain access on ([0-9]{4}-[0-9]{2}-[0-9]{2} at [0-9]{2}:[0-9]{2}) UTC\.?$)?`)
	regainAccess    = regexp.MustCompile(`^You have reached your API usage limits: .* You will regain access on ([0-9]{4}-[0-9]{2}-[0-9]{2} at [0-9]{2}:[0-9]{2}) UTC\.?$`)
)

// untilHour returns a function for the time until an hour of the day in UTC.
func untilHour(hour int) func(time.Time) time.Duration {
	const day = 24 * time.Hour
	return func(now time.Time) time.Duration {
		at := now.UTC().Truncate(day).Add(time.Duration(hour) * time.Hour)
		if !at.After(now) {
			at = at.Add(day)
		}
		return at.Sub(now)
	}
}

// classifyError returns what an error means, if that is known.
func classifyError(raw []byte, now time.Time) (Refusal, bool) {
	m := membersOf(raw)
	wait := m.wait(now)
	for _, name := range m.names() {
		for i := range rules {
			if r, ok := rules[i].apply(name, m, wait, now); ok {
				return r, true
			}
		}
	}
	return Refusal{}, false
}

// apply returns what an error means, if the rule is about it. Name is one of its names, and wait what it says.
func (r *rule) apply(name string, m members, wait time.Duration, now time.Time) (Refusal, bool) {
	if r.name != name || r.timed && wait == 0 {
		return Refusal{}, false
	}
	if r.message != nil {
		groups := r.message.FindStringSubmatch(m.text("message"))
		if groups == nil {
			return Refusal{}, false
		}
		wait = max(wait, until(groups[1:], now))
	}
	if wait == 0 && r.resets != nil {
		wait = r.resets(now)
	}
	found := Refusal{Class: r.class, Wait: wait, Reason: name}
	if t := m.text("type"); t == "requests" || t == "tokens" { // OpenAI
		found.Unit = t
	}
	return found, true
}

// until returns how long it is until an instant such as 2026-12-01 at 00:00, 0 if there is none.
func until(groups []string, now time.Time) time.Duration {
	if len(groups) == 0 {
		return 0
	}
	at, err := time.Parse("2006-01-02 at 15:04", groups[0])
	if err != nil {
		return 0
	}
	return min(max(0, at.Sub(now)), maxReset)
}

// members are the members of an object of JSON.
type members map[string]json.RawMessage

// membersOf reads an object. It returns nil for anything else.
func membersOf(raw []byte) members {
	var m members
	_ = json.Unmarshal(raw, &m) // nil then
	return m
}

// text returns a member that is a string, or anything else as it is written. It is "" if there is none.
func (m members) text(name string) string {
	var s string
	if json.Unmarshal(m[name], &s) != nil {
		return string(m[name])
	}
	return s
}

func (m members) seconds(name string) time.Duration {
	d, _ := parseSeconds(m.text(name), time.Second)
	return d
}

// Types of Google's details, and the name that a used up quota of a day gets.
const (
	typeErrorInfo    = "type.googleapis.com/google.rpc.ErrorInfo"
	typeQuotaFailure = "type.googleapis.com/google.rpc.QuotaFailure"
	perDay           = "QuotaFailure/PerDay"
)

// names returns what identifies an error, from the most specific to the least: the code in Anthropic's details,
// the reason or the quota in Google's, the code with Infura's event, the code, and the type.
func (m members) names() []string {
	names := []string{membersOf(m["details"]).text("error_code")}
	for _, d := range m.details() {
		switch d.text("@type") {
		case typeErrorInfo:
			names = append(names, d.text("reason"))
		case typeQuotaFailure:
			if d.isPerDay() {
				names = append(names, perDay)
			}
		}
	}
	code := m.text("code")
	return append(names, code+"/"+m.text("event"), code, m.text("type"))
}

// details returns Google's details.
func (m members) details() []members {
	var list []members
	_ = json.Unmarshal(m["details"], &list) // others have a text there, or an object
	return list
}

// isPerDay reports whether one of the quotas of a QuotaFailure is of a day. Their names are made of words, for
// example GenerateRequestsPerDayPerProjectPerModel-FreeTier.
func (m members) isPerDay() bool {
	var violations []members
	_ = json.Unmarshal(m["violations"], &violations)
	for _, v := range violations {
		if strings.Contains(v.text("quotaId"), "PerDay") {
			return true
		}
	}
	return false
}

// wait returns for how long an error wants no calls, 0 if it does not say: Infura's backoff_seconds, OpenAI's
// resets_at and resets_in_seconds, Google's retryDelay.
func (m members) wait(now time.Time) time.Duration {
	data := membersOf(m["data"])
	wait := max(data.seconds("backoff_seconds"), membersOf(data["rate"]).seconds("backoff_seconds"),
		m.seconds("resets_in_seconds"), parseSecondsOrUnix(m.text("resets_at"), now))
	for _, d := range m.details() {
		if seconds, ok := strings.CutSuffix(d.text("retryDelay"), "s"); ok {
			delay, _ := parseSeconds(seconds, time.Second)
			wait = max(wait, delay)
		}
	}
	return wait
}
