package budget

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/jsonrpc"
)

// FuzzParseTable wants that a table that is accepted has a cost of every unit for whatever it lists.
func FuzzParseTable(f *testing.F) {
	f.Add([]byte(testTable), "m")
	f.Add([]byte(`{"methods":{"*":{"a":1}},"units":{"a":"x"}}`), "*")
	f.Add([]byte(`{"name":[{"a":1e3}]}`), "")
	f.Fuzz(func(t *testing.T, data []byte, method string) {
		table, err := ParseTable(data)
		if err != nil {
			return
		}
		cost, err := table.Cost(method)
		if err != nil {
			return
		}
		units := table.Info().Units
		if len(cost) != len(units) {
			t.Fatalf("cost %v with units %v", cost, units)
		}
		for _, u := range units {
			if n, ok := cost[u.Name]; !ok || n < 0 || n > MaxAmount {
				t.Errorf("%d of unit %q", n, u.Name)
			}
		}
	})
}

// FuzzParseView wants that views are in their bounds and the same each time, and that no cost that the limit
// admits waits longer than until the bucket is full.
func FuzzParseView(f *testing.F) {
	f.Add("Ratelimit", `"a";r=1;t=2, b;a=3;w=4`, "Ratelimit-Policy", `"a";q=10;qu="x"`, "X-Ratelimit-Remaining", "7", int64(5))
	f.Add("X-Ratelimit-Limit", "10, 10;w=1", "X-Ratelimit-Remaining", "3", "X-Ratelimit-Reset", "1795003260", int64(5))
	f.Add("X-Ratelimit-Limit-Tokens", "-1", "X-Ratelimit-Remaining-Tokens", "0", "X-Ratelimit-Reset-Tokens", "6m0s", int64(1))
	f.Add("Anthropic-Ratelimit-Tokens-Limit", "9", "Anthropic-Ratelimit-Tokens-Remaining", "1", "Anthropic-Ratelimit-Tokens-Reset", "2026-11-18T12:00:01Z", int64(3))
	f.Add("Retry-After", "Wed, 18 Nov 2026 12:01:00 GMT", "Retry-After-Ms", "1.5", "Age", "1", int64(-1))
	f.Fuzz(func(t *testing.T, n1, v1, n2, v2, n3, v3 string, cost int64) {
		h := make(http.Header)
		h.Add(n1, v1)
		h.Add(n2, v2)
		h.Add(n3, v3)
		if d, ok := RetryAfter(h, viewTime); d < 0 || d > maxReset || d != 0 && !ok {
			t.Errorf("retry after %v, %v", d, ok)
		}
		views := ParseView(h, viewTime)
		if !slices.Equal(views, ParseView(h, viewTime)) {
			t.Error("other views of the same header")
		}
		for _, v := range views {
			checkView(t, v, cost)
		}
	})
}

func checkView(t *testing.T, v View, cost int64) {
	t.Helper()
	if v.Unit == "" || v.Limit < 0 || v.Remaining < 0 || min(v.FullAfter, v.MoreAfter) < 0 || max(v.FullAfter, v.MoreAfter) > maxReset {
		t.Errorf("view %+v", v)
	}
	wait := v.Wait(cost)
	never := v.Limit > 0 && cost > v.Limit && cost > v.Remaining
	if never != (wait == weir.Never) || !never && (wait < 0 || wait > max(v.FullAfter, v.MoreAfter)) || cost <= v.Remaining && wait != 0 {
		t.Errorf("%+v: wait %v for %d", v, wait, cost)
	}
	if e := v.Excess(cost); e < 0 || e > max(0, cost) {
		t.Errorf("%+v: excess %d over %d", v, e, cost)
	}
}

// FuzzClassify wants that refusals are in their bounds and the same each time, and that no response without an error
// is one below 400, whatever its headers and its result say.
func FuzzClassify(f *testing.F) {
	f.Add(429, "Retry-After", "7", []byte(`{"error":{"code":402,"event":-33000,"message":"x","data":{"rate":{"backoff_seconds":1e9}}}}`))
	f.Add(429, "X-Ratelimit-Remaining", "0", []byte(`[{"error":{"code":"429","type":"tokens","resets_at":99999999999,"resets_in_seconds":-1}},{"result":1}]`))
	f.Add(400, "Retry-After-Ms", "1.5", []byte(`{"error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."}}`))
	f.Add(403, "Age", "1", []byte(`{"error":{"code":429,"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"38.92s"},{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"aPerDay"},1]}]}}`))
	f.Add(200, "Ratelimit", `"a";r=0;t=2`, []byte(`{"error":{"code":-32007,"message":"9/second x","details":{"error_code":"enforced_spend_limit_reached"}}}`))
	f.Fuzz(func(t *testing.T, status int, name, value string, body []byte) {
		h := make(http.Header)
		h.Add(name, value)
		r, ok := Classify(status, h, body, viewTime)
		if again, okAgain := Classify(status, h, body, viewTime); again != r || okAgain != ok {
			t.Errorf("%+v, then %+v", r, again)
		}
		valid := r.Class >= Overloaded && r.Class <= AccessDenied && r.Wait >= 0 && r.Wait <= maxReset && r.Reason != ""
		if ok && !valid || !ok && r != (Refusal{}) {
			t.Errorf("%v: %+v", ok, r)
		}
		if errs, err := jsonrpc.Errors(body); ok && status < 400 && (err != nil || len(errs) == 0) {
			t.Errorf("%+v without an error", r)
		}
		result, err := json.Marshal(map[string]string{"jsonrpc": "2.0", "result": string(body)})
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := Classify(http.StatusOK, h, result, viewTime); ok {
			t.Errorf("%+v with a result", r)
		}
	})
}
