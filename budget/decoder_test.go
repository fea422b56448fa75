package budget

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// decode sends a request and reads the response as go-ethereum's client of JSON-RPC does: to the end of the value, which
// is not that of the body, and Close.
func decode(t *testing.T, c *http.Client, url, body string) {
	t.Helper()
	resp, err := c.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var v any
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		t.Fatal(err)
	}
}

// servingAll runs a test with a server of each kind: HTTP/1.1 with and without chunks, and HTTP/2.
func servingAll(t *testing.T, h http.HandlerFunc, test func(t *testing.T, base http.RoundTripper, url string)) {
	for _, kind := range []string{"HTTP/1.1", "HTTP/1.1 in chunks", "HTTP/2"} {
		t.Run(kind, func(t *testing.T) {
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				h(w, r)
				if kind != "HTTP/1.1" {
					w.(http.Flusher).Flush()
				}
			}))
			s.EnableHTTP2 = kind == "HTTP/2"
			s.StartTLS()
			defer s.Close()
			test(t, s.Client().Transport, s.URL)
		})
	}
}

// TestDecoderClassifies: refusals inside a 200, and the success that ends a denial.
func TestDecoderClassifies(t *testing.T) {
	answers := []string{`{"error":{"code":429}}`, `{"error":{"code":429,"message":"Monthly capacity limit exceeded."}}`, `{"result":1}`}
	for i := range answers {
		answers[i] += "\n"
	}
	next := 0
	servingAll(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answers[next]) }, func(t *testing.T, base http.RoundTripper, url string) {
		a := newAccount(t, Config{Name: "main", Preset: "alchemy-free", Logger: slog.New(slog.DiscardHandler)})
		c := &http.Client{Transport: &Transport{Account: a, Base: base}}
		for i, denied := range []bool{false, true, false} {
			next = i
			decode(t, c, url, `{"method":"eth_blockNumber"}`)
			if got := a.Denied() != nil; got != denied {
				t.Errorf("%s denied %v, want %v", answers[i], got, denied)
			}
		}
		if got := usage(t, a).Refusals; !maps.Equal(got, map[string]int64{"rate": 1, "denied": 1}) {
			t.Errorf("refusals %v", got)
		}
	})
}

// TestDecoderSettles: a cost that the response says.
func TestDecoderSettles(t *testing.T) {
	servingAll(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"tokens":7}`) }, func(t *testing.T, base http.RoundTripper, url string) {
		a := newAccount(t, Config{Name: "llm", Classes: []Class{}, Limits: []ruleset.Limit{
			{Unit: "tokens", Limit: weir.Limit{Rate: 10_000, Per: weir.Every(time.Hour)}},
		}})
		c := &http.Client{Transport: &Transport{
			Account: a, Base: base, Cost: FixedCost(In(Amounts{"tokens": 1000})),
			Settle: func(_ *http.Response, body []byte) (Cost, bool) {
				var usage struct{ Tokens int64 }
				err := json.Unmarshal(body, &usage)
				return In(Amounts{"tokens": usage.Tokens}), err == nil
			},
		}}
		decode(t, c, url, "{}")
		wantLedger(t, a, "tokens", Ledger{Granted: 1000, Used: 7, Returned: 993})
	})
}

// TestIncompleteBodies: what is closed before its end says nothing.
func TestIncompleteBodies(t *testing.T) {
	for _, tt := range []struct {
		kind, read string
		length     int64
		want       extent
	}{
		{"application/json", `{"a":[1]}`, -1, whole},
		{"application/json", " [1]\n", -1, whole},
		{"application/json", `{"a":[1]}`, 9, whole},
		{"application/json", `{"a":[1]}`, 100, partly},
		{"application/json", `{"a":[1]`, -1, partly},
		{"application/json", `{"a":{}`, -1, partly},
		{"application/json", `{}{}`, -1, partly},
		{"application/json", `12`, -1, partly}, // and then perhaps 3
		{"application/json", ``, -1, partly},
		{"text/event-stream", `{}`, -1, partly},
		{"text/plain", `abc`, 3, whole},
		{"text/plain", ``, 0, whole},
		{"application/json", strings.Repeat("x", 11), 11, tooLong},
	} {
		t.Run(fmt.Sprintf("%s of %d", tt.read, tt.length), func(t *testing.T) {
			var got []extent
			b := &watchedBody{
				ReadCloser: io.NopCloser(strings.NewReader(tt.read)), most: 10, length: tt.length, json: isJSON(http.Header{"Content-Type": {tt.kind}}),
				done: func(_ []byte, known extent) { got = append(got, known) },
			}
			_, _ = io.ReadFull(b, make([]byte, len(tt.read)))
			b.Close()
			b.Close()
			if len(got) != 1 || got[0] != tt.want {
				t.Errorf("got %v, want %v once", got, tt.want)
			}
		})
	}
}

// TestLongSuccess: a response that is longer than what is looked at is a success nevertheless.
func TestLongSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, Config{Name: "main", Preset: "alchemy-free", Logger: slog.New(slog.DiscardHandler)})
		controller(t, a, "").RecordRefusal(Refusal{Class: AccessDenied, Reason: "status 401"})
		c := &http.Client{Transport: &Transport{Account: a, Base: roundTripper(func(*http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.WriteString(`{"result":"` + strings.Repeat("0", maxRefusal) + `"}`)
			return w.Result(), nil
		})}}
		fetch(t, c, "POST", "http://provider", `{"method":"eth_blockNumber"}`)
		if d := a.Denied(); d != nil {
			t.Errorf("still denied: %+v", d)
		}
	})
}
