package httpapi

import (
	"bytes"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/golden"
	"github.com/weirlimit/weir/ruleset"
)

func TestDecisionsOnTheWire(t *testing.T) {
	api := newFixture(t, &scripted{}).state.Rules.Rule("api").Base()
	tests := []struct {
		name string
		d    weir.Decision
	}{
		{"admitted", weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: 100, Remaining: 99, ResetAfter: 10 * time.Millisecond}},
		{"admitted, tightest is another", weir.Decision{Allowed: true, Reason: weir.Admitted, By: 1, Limit: 1000, Remaining: 1, ResetAfter: time.Hour}},
		{"admitted, retry plays no part", weir.Decision{Allowed: true, Reason: weir.Admitted, RetryAfter: time.Second}},
		{"refused", weir.Decision{Reason: weir.Exhausted, Limit: 100, RetryAfter: 250 * time.Millisecond, ResetAfter: time.Second}},
		{"refused by a named limit", weir.Decision{Reason: weir.Exhausted, By: 1, Limit: 1000, RetryAfter: time.Hour, ResetAfter: time.Hour}},
		{"one nanosecond is one millisecond", weir.Decision{Reason: weir.Exhausted, RetryAfter: 1, ResetAfter: 1}},
		{"rounded up", weir.Decision{Reason: weir.Exhausted, RetryAfter: time.Millisecond + 1, ResetAfter: 2*time.Millisecond - 1}},
		{"never 0 when refused", weir.Decision{Reason: weir.QueueFull}},
		{"never", weir.Decision{Reason: weir.TooCostly, Limit: 100, Remaining: 100, RetryAfter: weir.Never}},
		{"reset never", weir.Decision{Allowed: true, Reason: weir.Admitted, ResetAfter: weir.Never}},
		{"too late", weir.Decision{Reason: weir.TooLate, RetryAfter: time.Minute}},
		{"store down", weir.Decision{Reason: weir.StoreDown, RetryAfter: time.Second}},
		{"blocked", weir.Decision{Reason: weir.Blocked, RetryAfter: time.Hour}},
		{"in debt", weir.Decision{Reason: weir.Exhausted, Limit: 100, Remaining: -20, RetryAfter: time.Second}},
		{"a limit that is not there", weir.Decision{Reason: weir.Exhausted, By: 200, RetryAfter: time.Second}},
		{"greatest", weir.Decision{Reason: weir.Exhausted, Limit: math.MaxInt64, Remaining: math.MaxInt64, RetryAfter: weir.Never - 1, ResetAfter: weir.Never - 1}},
	}
	var got bytes.Buffer
	for _, tt := range tests {
		v := ruleset.Verdict{Decision: tt.d, Variant: api, Limit: -1, Shadow: -1}
		if int(tt.d.By) < len(api.Limits()) {
			v.Limit = int(tt.d.By)
		}
		fmt.Fprintf(&got, "%s\n%s}\n", tt.name, appendDecision(nil, &v))
	}
	golden.Check(t, "testdata/decisions.golden", got.Bytes())
}

func TestCheckAllocates(t *testing.T) {
	api := newFixture(t, &scripted{}).state.Rules.Rule("api").Base()
	out := make([]byte, 0, 512)
	refused := ruleset.Verdict{Decision: weir.Decision{Reason: weir.Exhausted, Limit: 100, RetryAfter: 1}, Variant: api, Limit: 1, Waited: 1}
	if n := testing.AllocsPerRun(100, func() { out = appendDecision(out[:0], &refused) }); n != 0 {
		t.Errorf("a decision allocates %v times, want 0", n)
	}
	body := []byte(`{"policy":"default","key":"a-key-that-is-longer-than-32-bytes-is","cost":123}`)
	var req request
	if n := testing.AllocsPerRun(100, func() { req.decode(&checkForm, body) }); n > 1 {
		t.Errorf("a request allocates %v times, want at most the key", n)
	}
}
