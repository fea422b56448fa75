package weirhttp

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

func TestQuotaText(t *testing.T) {
	berlin := time.FixedZone("Berlin", 3600)
	second := weir.Every(time.Second)
	classes := weir.ClassesOf(weir.Class{Name: "realtime", Guaranteed: 300}, weir.Class{Name: "backfill", Guaranteed: 185})
	tests := []struct {
		name  string
		quota string
		limit weir.Limit
		unit  string
		want  string
	}{
		{"defaults", "api", weir.Limit{Rate: 100, Per: second}, "", `"api";q=100;w=1`},
		{"requests go without saying", "api", weir.Limit{Rate: 100, Per: second}, "requests", `"api";q=100;w=1`},
		{"unit", "llm", weir.Limit{Rate: 100, Per: second}, "tokens", `"llm";q=100;w=1;qu="tokens"`},
		{"gcra, greater burst", "api", weir.Limit{Rate: 3, Per: second, Burst: 10, Algorithm: weir.GCRA}, "", `"api";q=10;w=4`},
		{"gcra, a burst that fills in 3 s exactly", "api", weir.Limit{Rate: 3, Per: second, Burst: 9, Algorithm: weir.GCRA}, "", `"api";q=9;w=3`},
		{"token bucket, smaller burst", "api", weir.Limit{Rate: 3600, Per: weir.Every(time.Hour), Burst: 5, Algorithm: weir.TokenBucket}, "", `"api";q=5;w=5`},
		{"classes", "api", weir.Limit{Rate: 485, Per: second, Burst: 1250, Classes: classes}, "cu", `"api";q=1250;w=3;qu="cu"`},
		{"classes, of a policy", "api", weir.Limit{Rate: 485, Per: second, Burst: 1250, Algorithm: weir.Lending, Classes: classes}, "cu", `"api";q=1250;w=3;qu="cu"`},
		{"less than a second", "api", weir.Limit{Rate: 10, Per: weir.Every(time.Millisecond), Burst: 1}, "", `"api";q=1;w=1`},
		{"fixed", "api", weir.Limit{Rate: 60, Per: weir.Every(time.Minute), Burst: 60, Algorithm: weir.FixedWindow}, "", `"api";q=60;w=60`},
		{"anchored, rounded up", "api", weir.Limit{Rate: 60, Per: weir.Every(1500 * time.Millisecond), Algorithm: weir.AnchoredWindow}, "", `"api";q=60;w=2`},
		{"sliding", "api", weir.Limit{Rate: 60, Per: weir.Every(time.Hour), Algorithm: weir.SlidingWindow}, "", `"api";q=60;w=3600`},
		{"log", "api", weir.Limit{Rate: 6, Per: weir.Every(time.Hour), Algorithm: weir.SlidingLog}, "", `"api";q=6;w=3600`},
		{"dual", "api", weir.Limit{Rate: 6, Per: weir.Every(time.Minute), Algorithm: weir.DualWindow}, "", `"api";q=6;w=60`},
		{"day", "api.daily", weir.Limit{Rate: 1000, Per: weir.Calendar(weir.Day, nil)}, "", `"api.daily";q=1000;w=86400`},
		{"week", "api", weir.Limit{Rate: 1, Per: weir.Calendar(weir.Week, nil)}, "", `"api";q=1;w=604800`},
		{"month", "api", weir.Limit{Rate: 1, Per: weir.Calendar(weir.Month, berlin), Algorithm: weir.FixedWindow}, "", `"api";q=1;w=2592000`},
		{"year", "api", weir.Limit{Rate: 1, Per: weir.Calendar(weir.Year, nil)}, "", `"api";q=1;w=31536000`},
		{"concurrency", "slots", weir.Limit{Rate: 8, Algorithm: weir.Concurrency}, "", `"slots";q=8;qu="concurrent-requests"`},
		{"concurrency has its own unit", "slots", weir.Limit{Rate: 8, Algorithm: weir.Concurrency}, "tokens", `"slots";q=8;qu="concurrent-requests"`},
		{"15 digits", "api", weir.Limit{Rate: math.MaxInt64, Per: second, Algorithm: weir.FixedWindow}, "", `"api";q=999999999999999;w=1`},
		{"15 digits of seconds", "api", weir.Limit{Rate: 1, Per: weir.Every(math.MaxInt64), Burst: math.MaxInt64}, "", `"api";q=999999999999999;w=999999999999999`},
		{"no limit at all", "api", weir.Limit{}, "", `"api";q=0;w=1`},
		{"escapes", `a"b\c`, weir.Limit{Rate: 1, Per: second}, `u"`, `"a\"b\\c";q=1;w=1;qu="u\""`},
		{"bytes of no String", "a\r\nb\x00\x7f\u00fc", weir.Limit{Rate: 1, Per: second}, "\n", `"a??b????";q=1;w=1;qu="?"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := NewQuota(tt.quota, tt.limit, tt.unit).String()
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if err := checkList(got); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestQuotasAreOneList(t *testing.T) {
	if got := NewQuotas().String(); got != "" {
		t.Errorf("no quotas are %q", got)
	}
	want := `"api";q=100;w=1, "api.daily";q=1000;w=86400`
	if got := PolicyQuotas(apiPolicy(t), "").String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	list := []Quota{NewQuota("a", weir.Limit{Rate: 1, Per: weir.Every(time.Second)}, "")}
	quotas := NewQuotas(list...)
	list[0] = Quota{}
	if quotas.list[0] == list[0] {
		t.Error("quotas share the caller's slice")
	}
}

// TestNextUnit compares untilMore with when a limiter really has one more.
func TestNextUnit(t *testing.T) {
	at := weir.Instant(time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC).UnixNano())
	limits := []weir.Limit{
		{Rate: 1, Per: weir.Every(time.Second), Burst: 1000},
		{Rate: 1, Per: weir.Every(time.Hour), Burst: 24},
		{Rate: 7, Per: weir.Every(time.Minute), Burst: 100, Algorithm: weir.TokenBucket},
		{Rate: 7, Per: weir.Every(time.Minute), Burst: 1},
		{Rate: 3, Per: weir.Every(time.Hour)},
		{Rate: 10, Per: weir.Every(time.Hour), Algorithm: weir.FixedWindow},
		{Rate: 10, Per: weir.Calendar(weir.Month, nil)},
		{Rate: 10, Per: weir.Every(time.Hour), Algorithm: weir.AnchoredWindow},
	}
	for _, l := range limits {
		t.Run(l.String(), func(t *testing.T) {
			lim, err := weir.New(l)
			if err != nil {
				t.Fatal(err)
			}
			d := lim.TakeAt(at, lim.Limits()[0].Burst)
			s, ok := NewQuota("api", l, "").untilMore(d)
			if !ok || !d.Allowed || d.Remaining != 0 {
				t.Fatalf("%v: t %v", d, ok)
			}
			wait := time.Duration(s) * time.Second
			if n := lim.TakeAt(at.Add(wait-time.Second), 0).Remaining; n > 0 && s > 1 {
				t.Errorf("t=%d is a second too late", s)
			}
			if n := lim.TakeAt(at.Add(wait), 0).Remaining; n < 1 {
				t.Errorf("t=%d is too early", s)
			}
		})
	}
}

func apiPolicy(t testing.TB) *weir.Policy {
	t.Helper()
	p, err := weir.NewPolicy("api",
		weir.Limit{Rate: 100, Per: weir.Every(time.Second)},
		weir.Limit{Name: "daily", Rate: 1000, Per: weir.Calendar(weir.Day, nil)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// longest returns the longest name that a limit can have in a header.
func longest() string { return strings.Repeat("p", 128) + "." + strings.Repeat("l", 128) }

// A limit that is not sent to clients keeps its place among the others.
func TestQuotaThatIsNotTold(t *testing.T) {
	a := NewQuota("a", weir.Limit{Rate: 1, Per: weir.Every(time.Second)}, "")
	quotas := NewQuotas(Quota{}, a, Quota{})
	if got := quotas.String(); got != `"a";q=1;w=1` {
		t.Errorf("policy: %s", got)
	}
	for by, want := range []string{"", `"a";r=1`, "", ""} {
		h := http.Header{}
		SetHeaders(h, quotas, by, weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: 1, Remaining: 1})
		if got := h.Get("RateLimit"); got != want {
			t.Errorf("by %d: %q, want %q", by, got, want)
		}
	}
	if got := NewQuotas(Quota{}).String(); got != "" {
		t.Errorf("nothing is sent as %q", got)
	}
}
