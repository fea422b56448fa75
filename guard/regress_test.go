package guard

import (
	"testing"
)

// TestInFlightOfAnAddressThatIsTheSubject: a request without authentication was counted twice under
// the same key, so that with InFlight 1 none was ever admitted, and those of authenticated users of
// the address counted as its own.
func TestInFlightOfAnAddressThatIsTheSubject(t *testing.T) {
	g := newGuard(t, Config{InFlight: 1, BeforeAuth: BeforeAuth{InFlightPerIP: 3}})
	request := Request{Path: "/x", Address: localAddr}
	var passes [4]Pass
	for i, s := range []Subject{User("alice"), User("bob"), {}} {
		if v := through(t, g, &passes[i], request, s); !v.Allowed {
			t.Errorf("request %d, the first of its subject, was refused: %v", i, v.Cause)
		}
	}
	if v := through(t, g, &passes[3], request, User("carol")); v.Cause != ByInFlight || v.Subject.Verified {
		t.Errorf("the fourth request of the address: %v of %+v", v.Cause, v.Subject)
	}
	for i := range passes {
		passes[i].Done(t.Context(), false)
	}
	checkIdle(t, g)
}
