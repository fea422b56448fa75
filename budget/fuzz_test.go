package budget

import (
	"net/http"
	"slices"
	"testing"

	"github.com/weirlimit/weir"
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
