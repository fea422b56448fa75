package weirhttp

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// DefaultMostRetryAfter is how long a server can make its clients wait if they do
// not say otherwise.
const DefaultMostRetryAfter = 10 * time.Minute

// ParseRetryAfter reads the value of a Retry-After field, which is a number of
// seconds or a date, and returns how long to wait from now. A date in the past is 0.
// The answer is never more than most, so that a server cannot stop its clients for
// good; if that is not positive, DefaultMostRetryAfter. It returns false if the
// value is neither: a fraction, a sign or a unit are not allowed.
func ParseRetryAfter(value string, now time.Time, most time.Duration) (time.Duration, bool) {
	if most <= 0 {
		most = DefaultMostRetryAfter
	}
	value = strings.Trim(value, " \t")
	if isDigits(value) {
		return secondsUpTo(value, most), true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return min(max(0, at.Sub(now)), most), true
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// secondsUpTo returns digits as a duration. Those too many for a number are most.
func secondsUpTo(digits string, most time.Duration) time.Duration {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > int64(most/time.Second) {
		return most
	}
	return time.Duration(n) * time.Second
}
