package identity

import (
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/weirlimit/weir"
)

// TestDetails: who has to wait is told how long only if that helps.
func TestDetails(t *testing.T) {
	for _, tt := range []struct {
		name     string
		no       Refusal
		retry    time.Duration // in RetryInfo; Never if there is to be none
		pushback string
	}{
		{"soon", Refusal{Status: 429, RetryAfter: 2500 * time.Millisecond}, 2500 * time.Millisecond, "2500"},
		{"rounded up", Refusal{Status: 429, RetryAfter: 1}, 1, "1"},
		{"never", Refusal{Status: 429, RetryAfter: weir.Never}, weir.Never, "-1"},
	} {
		retry, quotas := weir.Never, 0
		for _, packed := range tt.no.Details() {
			m, err := packed.UnmarshalNew()
			if err != nil {
				t.Fatal(err)
			}
			switch m := m.(type) {
			case *errdetails.RetryInfo:
				retry = m.RetryDelay.AsDuration()
			case *errdetails.QuotaFailure:
				quotas += len(m.Violations)
			}
		}
		if retry != tt.retry || quotas != 1 || tt.no.PushbackMillis() != tt.pushback {
			t.Errorf("%s: RetryInfo of %v, %d violations, pushback %s", tt.name, retry, quotas, tt.no.PushbackMillis())
		}
	}
	if got := (&Refusal{Status: 401}).Details(); got != nil {
		t.Errorf("401 has the details %v", got)
	}
}

// TestDetailsSayWho: the subject is what is counted, which of IPv6 is a network.
func TestDetailsSayWho(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:99":          "clientip:192.0.2.1",
		"[::ffff:192.0.2.1]:99": "clientip:192.0.2.1",
		"[2001:db8::1]:99":      "clientip:2001:db8::/64",
		"@":                     "clientip:unix",
	} {
		d := newDoor(t)
		no := &Refusal{}
		for range failuresPerMinute + 5 { // a few more, should it take long
			_, no = d.Who(Shown{Token: "wrong", Address: address})
		}
		var quota errdetails.QuotaFailure
		if details := no.Details(); len(details) == 0 || details[0].UnmarshalTo(&quota) != nil {
			t.Fatalf("%s: %v has the details %v", address, no, details)
		}
		if v := quota.Violations[0]; v.Subject != want || v.QuotaId != "failed-logins" || v.QuotaValue != failuresPerMinute || v.Description != no.Problem {
			t.Errorf("%s: %v, want the subject %s", address, v, want)
		}
	}
}
