package identity

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fail sends a wrong token, n times.
func fail(t *testing.T, d *Authenticator, from string, n int) {
	t.Helper()
	for i := range n {
		if _, err := d.Client(request(from, "Bearer "+token("wrong"))); err == nil || err.Status != 401 {
			t.Fatalf("wrong token %d of %s: %+v", i+1, from, err)
		}
	}
}

// wantThrottled sends one more, which has to wait.
func wantThrottled(t *testing.T, d *Authenticator, from string, wait time.Duration) {
	t.Helper()
	c, err := d.Client(request(from, "Bearer "+token("wrong")))
	if c != nil || err == nil || err.Status != 429 || err.RetryAfter != wait {
		t.Errorf("%s: %v, %+v, want a 429 and %v", from, c, err, wait)
	}
}

// wantServed sends right tokens of a client and of an operator.
func wantServed(t *testing.T, d *Authenticator, from string) {
	t.Helper()
	if c, err := d.Client(request(from, "Bearer "+token("shop"))); err != nil || c.Name != "shop" {
		t.Fatalf("the right token from %s: %v, %v", from, c, err)
	}
	if o, err := d.Operator(request(from, "Bearer "+token("root")), Write); err != nil || o.Name != "root" {
		t.Fatalf("the right admin token from %s: %v, %v", from, o, err)
	}
}

// Two wrong tokens a second for a minute, from an address: the right ones from there are served every
// time, and of the wrong ones 20 and one every three seconds are answered with 401, the rest with 429.
func TestValidTokensAreNotThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newAuthenticator(t)
		const from = "192.0.2.1:1000"
		status := map[int]int{}
		for range 120 {
			_, err := d.Client(request(from, "Bearer "+token("wrong")))
			status[err.Status]++
			wantServed(t, d, from)
			if _, err := d.Client(request(from, "")); err.Status != 401 { // a missing token is never throttled
				t.Fatal(err)
			}
			time.Sleep(time.Second / 2)
		}
		if want := map[int]int{401: 39, 429: 81}; !cmp.Equal(status, want) { // 59.5 s are 19 times 3 s
			t.Errorf("wrong tokens are answered with %v, want %v", status, want)
		}
	})
}

func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newAuthenticator(t)
		const from = "192.0.2.1:1000"
		fail(t, d, from, 10)
		fail(t, d, "192.0.2.1:2000", 10) // another port
		wantThrottled(t, d, from, 3*time.Second)
		for _, other := range []string{"192.0.2.2:1000", "[2001:db8::1]:1000", "@"} {
			fail(t, d, other, 20)
		}
		for i := range 21 { // operators' failures are counted apart
			_, err := d.Operator(request(from, "Bearer "+token("shop")), Read)
			if want := map[bool]int{true: 401, false: 429}[i < 20]; err.Status != want {
				t.Fatalf("wrong admin token %d: %d, want %d", i+1, err.Status, want)
			}
		}
		wantThrottled(t, &Authenticator{Clients: d.Clients, Failures: d.Failures}, from, 3*time.Second) // as after a reload
		time.Sleep(3*time.Second - 1)
		wantThrottled(t, d, from, 1)
		time.Sleep(time.Nanosecond)
		fail(t, d, from, 1)
		wantThrottled(t, d, from, 3*time.Second)
		time.Sleep(time.Minute)
		fail(t, d, from, 20)
	})
}

// All 2^64 addresses of an IPv6 network share one limit.
func TestThrottleOfANetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newAuthenticator(t)
		for i := range 20 {
			fail(t, d, fmt.Sprintf("[2001:db8::%x]:1", i+1), 1)
		}
		wantThrottled(t, d, "[2001:db8::abcd]:1", 3*time.Second)
	})
}

// However many addresses send wrong tokens, those that are throttled stay so, an address that does not
// fit is not throttled for what others sent, and there is room again when the others are forgotten.
func TestManyAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newAuthenticator(t)
		for i := range failureAddresses {
			fail(t, d, fmt.Sprintf("10.0.%d.%d:1", i>>8, i&255), 20)
		}
		fail(t, d, "192.0.2.1:1", 100)
		wantThrottled(t, d, "10.0.0.0:1", 3*time.Second)
		if n := len(d.Failures.kinds[clientKind].whole); n != failureAddresses {
			t.Errorf("%d addresses are remembered, want %d", n, failureAddresses)
		}
		time.Sleep(time.Minute)
		fail(t, d, "192.0.2.1:1", 20)
		wantThrottled(t, d, "192.0.2.1:1", 3*time.Second)
		if n := len(d.Failures.kinds[clientKind].whole); n != 1 {
			t.Errorf("%d addresses are remembered a minute later, want 1", n)
		}
	})
}

// A wrong name with a right token is a wrong token. What a caller claims to be is not logged.
func TestClaimedName(t *testing.T) {
	var log bytes.Buffer
	d := newAuthenticator(t)
	d.Failures.Log = logTo(&log)
	for name, want := range map[string]bool{"": true, "shop": true, "cert": false, token("shop"): false, "SHOP": false} {
		c, err := d.Authenticate(Credentials{Name: name, Token: token("shop"), Address: "192.0.2.1:1"})
		if (err == nil) != want || (c != nil) != want || err != nil && err.Status != 401 {
			t.Errorf("%q: %v, %v", name, c, err)
		}
	}
	if strings.Contains(log.String(), "shop") || log.Len() == 0 {
		t.Error(log.String())
	}
}

// logTo returns a logger that writes lines without the time.
func logTo(b *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// counts returns the counters that are not 0.
func counts(f *Failures) map[string]uint64 {
	got, all := map[string]uint64{}, 0
	f.Each(func(kind, reason string, n uint64) {
		if all++; n > 0 {
			got[kind+" "+reason] = n
		}
	})
	if all != 8 {
		got["series"] = uint64(all)
	}
	return got
}

// Each failure is counted; a line a second is written for each kind, with the number since the last.
func TestFailuresAreCountedAndLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := newAuthenticator(t)
		d.Failures.Log = logTo(&log)
		d.Clients = clients(t, Client{Name: "shop", Tokens: tokens("shop"), Grants: Grants{Policies: Patterns{"api"}}})
		wantServed(t, d, "192.0.2.9:1")
		if got := counts(d.Failures); len(got) > 0 || log.Len() > 0 {
			t.Errorf("after right tokens: %v, %s", got, log.String())
		}
		for i := range 25 { // ten a second
			_, _ = d.Client(request(fmt.Sprintf("192.0.2.1:%d", i+1), "Bearer "+token("wrong")))
			time.Sleep(time.Second / 10)
		}
		_, _ = d.Client(request("192.0.2.2:1", ""))
		_, _ = d.Operator(request("192.0.2.3:1", "Bearer "+token("wrong")), Read)
		time.Sleep(time.Second)
		_, _ = d.Operator(request("192.0.2.4:1", "Bearer "+token("reader")), Write)
		shop, _ := d.Client(request("192.0.2.5:1", "Bearer "+token("shop")))
		if d.MayPolicy(shop, "billing") || d.MayDomain(shop, "edge") || !d.MayPolicy(shop, "api") || !d.MayPolicy(nil, "billing") {
			t.Error("grants are not enforced")
		}
		_, _ = d.Client(request("192.0.2.6:1", "Basic x"))
		want := map[string]uint64{
			"client unknown": 20, "client throttled": 5, "client missing": 2, "client forbidden": 2,
			"admin unknown": 1, "admin forbidden": 1,
		}
		if diff := cmp.Diff(want, counts(d.Failures)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		const lines = `level=WARN msg="authentication failed" kind=client reason=unknown remote=192.0.2.1:1 failures=1
level=WARN msg="authentication failed" kind=client reason=unknown remote=192.0.2.1:11 failures=10
level=WARN msg="authentication failed" kind=client reason=throttled remote=192.0.2.1:21 failures=10
level=WARN msg="authentication failed" kind=admin reason=unknown remote=192.0.2.3:1 failures=1
level=WARN msg="authentication failed" kind=client reason=missing remote=192.0.2.6:1 failures=6
`
		if diff := cmp.Diff(lines, log.String()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

// An Authenticator without Failures refuses all the same, and a look has no consequences.
func TestNothingIsRecorded(t *testing.T) {
	d := newAuthenticator(t)
	wrong := Credentials{Token: token("wrong"), Address: "192.0.2.1:1"}
	for range 100 {
		if c, ok := d.Find(wrong); c != nil || ok {
			t.Fatal(c, ok)
		}
	}
	if got := counts(d.Failures); len(got) > 0 {
		t.Errorf("looks were counted: %v", got)
	}
	d.Failures = nil
	for range 100 {
		if _, err := d.Authenticate(wrong); err == nil || err.Status != 401 {
			t.Fatal(err)
		}
	}
}

func TestConcurrentFailures(t *testing.T) {
	d := newAuthenticator(t)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 100 {
				_, _ = d.Client(request(fmt.Sprintf("192.0.2.%d:1", i%2), "Bearer "+token("wrong")))
				if _, err := d.Client(request("192.0.2.1:1", "Bearer "+token("shop"))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got := counts(d.Failures)
	if n := got["client unknown"] + got["client throttled"]; n != 400 || got["client unknown"] < 40 {
		t.Error(got)
	}
}
