package budget

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// View is what a provider says in a response about one of its limits. It is only ever a reason to use less:
// who else uses the key is not known, and what a provider says is rounded and late.
type View struct {
	// Unit is what is counted, in lower case, for example "requests" or "input-tokens". It is "requests" for
	// headers that do not name a unit.
	Unit string

	// Policy is the provider's name of the limit, for example "burst", or "" if it has none.
	Policy string

	// Limit is how many units there are in all, 0 if the response does not say.
	Limit int64

	// Remaining is how many units are left.
	Remaining int64

	// FullAfter is how long it takes until all units are back, if they come back one by one, as those of
	// OpenAI and Anthropic do. It is 0 if the response does not say.
	FullAfter time.Duration

	// MoreAfter is how long it takes until more units are there than now, if nothing is known of how many:
	// the provider may count by windows. It is 0 if the response does not say.
	MoreAfter time.Duration
}

// Bounds of what is read of a response.
const (
	maxViews     = 32
	maxUnitBytes = 64
	maxNameBytes = 256                  // of a policy
	maxReset     = 366 * 24 * time.Hour // a longer time is malformed
)

// Wait returns how long to wait until a cost fits, as far as the provider says. Units that come back one by
// one fill the bucket in FullAfter, so the missing ones take their part of it, rounded up:
//
//	(cost − Remaining) × FullAfter / (Limit − Remaining)
//
// For example, of 1,000 tokens with 400 remaining and full in 36 s, a cost of 500 fits in 6 s. Otherwise it is
// MoreAfter. It is 0 if the cost fits now or the provider does not say when, never more than FullAfter, and
// weir.Never if the cost is above the limit.
func (v View) Wait(cost int64) time.Duration {
	switch {
	case cost <= max(0, v.Remaining):
		return 0
	case v.Limit > 0 && cost > v.Limit:
		return weir.Never
	case v.FullAfter <= 0:
		return max(0, v.MoreAfter)
	case v.Limit <= 0:
		return v.FullAfter
	}
	// Here Remaining < cost ≤ Limit. A negative remainder is taken as 0, so that the differences fit.
	left := max(0, v.Remaining)
	return time.Duration(mulDivUp(int64(v.FullAfter), cost-left, v.Limit-left))
}

// Excess returns how many units fewer the provider says remain than we count, 0 if there are as many or
// more. They were used by somebody else with the same key, or by calls that we count differently.
func (v View) Excess(localRemaining int64) int64 {
	if left := max(0, v.Remaining); left < localRemaining {
		return localRemaining - left
	}
	return 0
}

// ParseView reads what a response says about limits, sorted by unit and policy. It knows
//
//   - RateLimit and RateLimit-Policy, the IETF draft, as lists (draft-08 to -11),
//   - X-RateLimit-Limit, -Remaining and -Reset, also without X-; a reset is in seconds, or Unix time,
//   - x-ratelimit-limit-tokens, … of OpenAI and the like, for any unit, with resets such as 6m0s,
//   - anthropic-ratelimit-tokens-limit, … for any unit, and anthropic-priority-… and anthropic-fast-… with
//     that as their policy; their resets are times.
//
// A field that is malformed does not count, nor does a limit without a remainder. On a response from a cache
// (Age > 0) nothing does: what it says is old. Times are compared with now.
func ParseView(h http.Header, now time.Time) []View {
	if age, ok := parseCount(single(h, "Age")); ok && age > 0 {
		return nil
	}
	views := viewsOfDraft(h)
	for _, found := range collectFields(h) {
		if v, ok := found.view(now); ok {
			views = append(views, v)
		}
	}
	slices.SortFunc(views, func(a, b View) int {
		return cmp.Or(strings.Compare(a.Unit, b.Unit), strings.Compare(a.Policy, b.Policy),
			cmp.Compare(a.Remaining, b.Remaining), cmp.Compare(a.Limit, b.Limit),
			cmp.Compare(a.FullAfter, b.FullAfter), cmp.Compare(a.MoreAfter, b.MoreAfter))
	})
	return views[:min(len(views), maxViews)]
}

// viewsOfDraft reads RateLimit and RateLimit-Policy. Newer drafts may call the remainder a and the time w.
func viewsOfDraft(h http.Header) []View {
	status, ok := listField(h, "Ratelimit")
	if !ok {
		return nil
	}
	policies := policiesOfDraft(h)
	views := make([]View, 0, len(status))
	for _, it := range status {
		remaining, ok := it.count("r", "a")
		if !ok || remaining < 0 || len(it.name) > maxNameBytes {
			return nil // required of each member, so the field is malformed
		}
		v := policies[it.name]
		v.Policy, v.Remaining, v.Unit = it.name, remaining, cmp.Or(v.Unit, "requests")
		if t, ok := it.count("t", "w"); ok && t >= 0 {
			v.MoreAfter = secondsUpTo(t)
		}
		views = append(views, v)
	}
	return views
}

// policiesOfDraft returns the units and limits of policies by name.
func policiesOfDraft(h http.Header) map[string]View {
	list, _ := listField(h, "Ratelimit-Policy")
	policies := make(map[string]View, len(list))
	for _, it := range list {
		quota, ok := it.count("q")
		if !ok || quota < 0 {
			return nil
		}
		unit, _ := it.params["qu"].(string)
		if len(unit) > maxUnitBytes {
			return nil
		}
		policies[it.name] = View{Unit: strings.ToLower(unit), Limit: quota}
	}
	return policies
}

// listField reads a field that may have several lines.
func listField(h http.Header, name string) ([]item, bool) {
	lines := h[name]
	if len(lines) == 0 {
		return nil, false
	}
	list, ok := parseList(strings.Join(lines, ", "))
	return list, ok && len(list) <= maxViews
}

// count returns the first of the parameters that is there, if it is an integer.
func (it item) count(names ...string) (int64, bool) {
	for _, name := range names {
		if v, there := it.params[name]; there {
			n, ok := v.(int64)
			return n, ok
		}
	}
	return 0, false
}

// secondsUpTo returns seconds as a duration. Those of a longer time are maxReset.
func secondsUpTo(n int64) time.Duration {
	return time.Duration(min(n, int64(maxReset/time.Second))) * time.Second
}

// family is how a group of providers names its fields.
type family int

const (
	plain     family = iota // x-ratelimit-limit: resets are seconds or Unix time
	suffixed                // x-ratelimit-limit-tokens: resets are durations
	anthropic               // anthropic-ratelimit-tokens-limit: resets are times
)

// fieldsOf identifies the fields that belong to one limit.
type fieldsOf struct {
	family family
	prefix string // of the names, "" unless two prefixes have the same family
	unit   string
	policy string
}

// limitFields is the values of such fields, "" if one is missing.
type limitFields struct {
	fieldsOf
	limit, remaining, reset string
}

// collectFields finds the fields of limits, except those of the draft.
func collectFields(h http.Header) map[fieldsOf]*limitFields {
	all := make(map[fieldsOf]*limitFields)
	for name, values := range h {
		id, part, ok := identify(strings.ToLower(name))
		if !ok || name != http.CanonicalHeaderKey(name) || len(values) != 1 || len(id.unit) > maxUnitBytes {
			continue
		}
		found := all[id]
		if found == nil {
			found = &limitFields{fieldsOf: id}
			all[id] = found
		}
		*found.part(part) = strings.Trim(values[0], " \t")
	}
	return all
}

// identify says which part of which limit a field is, such as "remaining" of the unit "tokens".
func identify(name string) (id fieldsOf, part string, ok bool) {
	if rest, isTheirs := strings.CutPrefix(name, "anthropic-"); isTheirs {
		return identifyAnthropic(rest)
	}
	prefix, rest, ok := strings.Cut(name, "ratelimit-")
	if !ok || prefix != "" && prefix != "x-" {
		return id, "", false
	}
	part, unit, hasUnit := strings.Cut(rest, "-")
	switch {
	case !hasUnit:
		id = fieldsOf{family: plain, prefix: prefix, unit: "requests"}
	case unit != "":
		id = fieldsOf{family: suffixed, prefix: prefix, unit: unit}
	}
	return id, part, id.unit != "" && isPart(part)
}

// identifyAnthropic is identify for a name after its first word, such as "ratelimit-input-tokens-reset".
func identifyAnthropic(name string) (id fieldsOf, part string, ok bool) {
	policy, rest, _ := strings.Cut(name, "-")
	switch policy {
	case "ratelimit":
		policy = ""
	case "priority", "fast":
	default:
		return id, "", false
	}
	cut := strings.LastIndexByte(rest, '-')
	if cut <= 0 {
		return id, "", false
	}
	part = rest[cut+1:]
	return fieldsOf{family: anthropic, unit: rest[:cut], policy: policy}, part, isPart(part)
}

func isPart(s string) bool { return s == "limit" || s == "remaining" || s == "reset" }

func (f *limitFields) part(name string) *string {
	switch name {
	case "limit":
		return &f.limit
	case "remaining":
		return &f.remaining
	}
	return &f.reset
}

// view returns the view of the fields, if they have a remainder and do not say that there is no limit.
func (f *limitFields) view(now time.Time) (View, bool) {
	remaining, ok := parseCount(f.remaining)
	limit, limited := f.parseLimit()
	if !ok || !limited {
		return View{}, false
	}
	v := View{Unit: f.unit, Policy: f.policy, Limit: limit, Remaining: remaining}
	switch f.family {
	case plain:
		v.MoreAfter = parseSecondsOrUnix(f.reset, now)
	case suffixed:
		v.FullAfter = parseReset(f.reset)
	case anthropic:
		v.FullAfter = parseTime(f.reset, now)
	}
	return v, true
}

// parseLimit returns the limit, 0 if it is missing or malformed. It returns false for a limit of 0 or less,
// which Azure sends for what it does not count; the remainder means nothing then. Envoy sends windows after
// the limit: "10, 10;w=1, 50;w=60".
func (f *limitFields) parseLimit() (limit int64, limited bool) {
	text := f.limit
	if f.family == plain {
		text, _, _ = strings.Cut(text, ",")
	}
	n, ok := parseCount(strings.TrimPrefix(text, "-"))
	switch {
	case !ok:
		return 0, true
	case n == 0 || text[0] == '-':
		return 0, false
	}
	return n, true
}

// parseCount reads a number of digits, at most 18.
func parseCount(s string) (int64, bool) {
	if s == "" || len(s) > 18 {
		return 0, false
	}
	for i := range len(s) {
		if !isDigit(s[i]) {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// parseReset reads a duration such as 6m0s, or seconds with or without a fraction. It returns 0 for anything
// else.
func parseReset(s string) time.Duration {
	if d, ok := parseSeconds(s, time.Second); ok && d < maxReset {
		return d
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0
	}
	return bounded(d)
}

// unixTimes is the first number of seconds that is taken for Unix time, as nothing tells the two apart: it is
// in 2001, or more than 31 years.
const unixTimes = 1_000_000_000

// parseSecondsOrUnix reads seconds from now, or Unix time.
func parseSecondsOrUnix(s string, now time.Time) time.Duration {
	n, ok := parseCount(s)
	switch {
	case !ok:
		return 0
	case n > unixTimes:
		return bounded(time.Unix(n, 0).Sub(now))
	case n > int64(maxReset/time.Second):
		return 0
	}
	return time.Duration(n) * time.Second
}

// parseTime reads a time in the form of RFC 3339.
func parseTime(s string, now time.Time) time.Duration {
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return 0
	}
	return bounded(at.Sub(now))
}

// bounded returns a duration that is possible for a reset, otherwise 0.
func bounded(d time.Duration) time.Duration {
	if d < 0 || d > maxReset {
		return 0
	}
	return d
}

// RetryAfter returns how long a provider asks to wait before the next request: Retry-After in seconds or as a
// date, or retry-after-ms. If several are there, the longest counts; but retry-after-ms where Retry-After is the same, rounded
// up to seconds. A date in the past is 0. It returns false if none is there that can be read.
//
// It is what the provider said and may be weeks: a cooldown lasts that long as far as it is plausible, see Refusal.Pause, but a
// caller should not wait for it. It is at most 366 days.
func RetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	fine, hasFine := longestOf(h["Retry-After-Ms"], func(s string) (time.Duration, bool) { return parseSeconds(s, time.Millisecond) })
	wait, has := longestOf(h["Retry-After"], func(s string) (time.Duration, bool) { return parseRetryAfter(s, now) })
	if !has || hasFine && fine <= wait && wait-fine < time.Second {
		return fine, hasFine
	}
	return max(wait, fine), true
}

// longestOf returns the longest of the durations in a field, which may be there several times, or have several values.
func longestOf(values []string, parse func(string) (time.Duration, bool)) (longest time.Duration, has bool) {
	for _, value := range values {
		parts := []string{value}
		if _, ok := parse(strings.Trim(value, " \t")); !ok { // a date has a comma
			parts = strings.Split(value, ",")
		}
		for _, part := range parts {
			if d, ok := parse(strings.Trim(part, " \t")); ok {
				longest, has = max(longest, d), true
			}
		}
	}
	return longest, has
}

// parseRetryAfter reads seconds, which may have a fraction although they should not, or a date.
func parseRetryAfter(value string, now time.Time) (time.Duration, bool) {
	if isCount(value) {
		n, ok := parseCount(value)
		if !ok {
			n = math.MaxInt64
		}
		return secondsUpTo(n), true
	}
	if d, ok := parseSeconds(value, time.Second); ok {
		return d, true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return min(max(0, at.Sub(now)), maxReset), true
}

func isCount(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// single returns the value of a field that is there once, otherwise "".
func single(h http.Header, name string) string {
	if values := h[name]; len(values) == 1 {
		return strings.Trim(values[0], " \t")
	}
	return ""
}

// parseSeconds reads digits, possibly with a fraction, as so many of a unit, rounded up to the nanosecond and
// at most maxReset.
func parseSeconds(s string, unit time.Duration) (time.Duration, bool) {
	whole, fraction, hasFraction := strings.Cut(s, ".")
	n, ok := parseCount(whole)
	if !ok || hasFraction && !isCount(fraction) {
		return 0, false
	}
	if n >= int64(maxReset/unit) {
		return maxReset, true
	}
	d := time.Duration(n) * unit
	scale := unit
	for i := range len(fraction) {
		digit := time.Duration(fraction[i] - '0')
		if scale < 10 { // below a nanosecond
			if digit > 0 {
				return d + 1, true
			}
			continue
		}
		scale /= 10
		d += digit * scale
	}
	return d, true
}
