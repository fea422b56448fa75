package identity

import (
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/weirlimit/weir"
)

// TestDetails: a throttled caller gets a RetryInfo only if waiting helps.
func TestDetails(t *testing.T) {
	for _, tt := range []struct {
		name     string
		refusal  Refusal
		retry    time.Duration // in RetryInfo; Never if there is to be none
		pushback string
	}{
		{"soon", Refusal{Status: 429, RetryAfter: 2500 * time.Millisecond}, 2500 * time.Millisecond, "2500"},
		{"rounded up", Refusal{Status: 429, RetryAfter: 1}, 1, "1"},
		{"never", Refusal{Status: 429, RetryAfter: weir.Never}, weir.Never, "-1"},
	} {
		retry, quotas := weir.Never, 0
		for _, packed := range tt.refusal.Details() {
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
		if retry != tt.retry || quotas != 1 || tt.refusal.PushbackMillis() != tt.pushback {
			t.Errorf("%s: RetryInfo of %v, %d violations, pushback %s", tt.name, retry, quotas, tt.refusal.PushbackMillis())
		}
	}
	if got := (&Refusal{Status: 401}).Details(); got != nil {
		t.Errorf("401 has the details %v", got)
	}
}

// TestDetailsSubject: the subject is the throttled address, for IPv6 the network.
func TestDetailsSubject(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:99":          "clientip:192.0.2.1",
		"[::ffff:192.0.2.1]:99": "clientip:192.0.2.1",
		"[2001:db8::1]:99":      "clientip:2001:db8::/64",
		"@":                     "clientip:unix",
	} {
		d := newAuthenticator(t)
		refusal := &Refusal{}
		for range failuresPerMinute + 5 { // a few more, should it take long
			_, refusal = d.Authenticate(Credentials{Token: "wrong", Address: address})
		}
		var quota errdetails.QuotaFailure
		if details := refusal.Details(); len(details) == 0 || details[0].UnmarshalTo(&quota) != nil {
			t.Fatalf("%s: %v has the details %v", address, refusal, details)
		}
		if v := quota.Violations[0]; v.Subject != want || v.QuotaId != "failed-logins" || v.QuotaValue != failuresPerMinute || v.Description != refusal.Problem {
			t.Errorf("%s: %v, want the subject %s", address, v, want)
		}
	}
}
