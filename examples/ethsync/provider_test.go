package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// post sends a body to the provider and returns the response.
func post(p http.Handler, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
	return w
}

func rpc(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`, method, params)
}

func TestProviderMethods(t *testing.T) {
	const tx = `{"blockNumber":"0x1312d00","transactionHash":"0x0000000000000000000000000000000000000000000000000000000001312d00"}`
	tests := []struct{ method, params, want string }{
		{blockNumber, `[]`, `"0x1312d02"`},
		{getBlock, `["0x1312d02",false]`, `{"number":"0x1312d02","transactions":["0x0000000000000000000000000000000000000000000000000000000001312d02"]}`},
		{getBlock, `["0x1312d03",false]`, `null`},
		{getLogs, `[{"fromBlock":"0x1312cff","toBlock":"0x1312d09"}]`, `[` + tx + `]`},
		{getLogs, `[{"fromBlock":"0x1312d01","toBlock":"0x1312d01"}]`, `[]`},
		{getTransfers, `[{"fromBlock":"0x1312d00","toBlock":"0x1312d00"}]`, `[` + tx + `]`},
		{getTransaction, `["0x0000000000000000000000000000000000000000000000000000000001312d00"]`, tx},
		{getReceipt, `["0x0000000000000000000000000000000000000000000000000000000001312d00"]`, tx},
		{getBlockReceipts, `["0x1312d00"]`, `[` + tx + `]`},
		{getLogs, `[{"fromBlock":"0x0","toBlock":"0x7cf"}]`, ""}, // 2,000 blocks
		{getLogs, `[{"fromBlock":"0x0","toBlock":"0x7d0"}]`, "error"},
		{getLogs, `[{"fromBlock":"0x1","toBlock":"0x0"}]`, "error"},
		{getLogs, `[{"fromBlock":"latest","toBlock":"0x0"}]`, "error"},
		{getLogs, `[]`, "error"},
		{getBlock, `[17]`, "error"},
		{getBlock, `["-0x1"]`, "error"},
	}
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(chain{time.Second}, throughputCosts(), 0, 1)
		time.Sleep(2500 * time.Millisecond) // on the clock of the bubble: the head is the third block
		for _, tt := range tests {
			var a answer
			w := post(p, rpc(tt.method, tt.params))
			if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != http.StatusOK || string(a.ID) != "7" {
				t.Fatalf("%s %s: %d %s %v", tt.method, tt.params, w.Code, w.Body, err)
			}
			if tt.want == "error" {
				if a.Error == nil || a.Error.Code != -32602 || a.Result != nil {
					t.Errorf("%s %s: %s, want an error", tt.method, tt.params, w.Body)
				}
				continue
			}
			if got := string(a.Result); a.Error != nil || tt.want != "" && got != tt.want {
				t.Errorf("%s %s = %s, want %s", tt.method, tt.params, w.Body, tt.want)
			}
		}
	})
}

func TestProviderRefusesBadRequests(t *testing.T) {
	p := newProvider(chain{time.Second}, throughputCosts(), 0, 1)
	for _, body := range []string{
		``, `{`, `[]`, `7`, rpc("eth_unknown", "[]"), `[` + rpc(blockNumber, "[]") + `,` + rpc("eth_unknown", "[]") + `]`,
		`[` + strings.Repeat(rpc(getBlockReceipts, "[]")+`,`, 10) + rpc(blockNumber, "[]") + `]`, // 5,010 units
		strings.Repeat(" ", 1<<20+1),
	} {
		w := post(p, body)
		var a answer
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != http.StatusBadRequest || a.Error == nil || a.Error.Code != -32600 {
			t.Errorf("%.60s: %d %s", body, w.Code, w.Body)
		}
	}
	if s := p.snapshot(); s.Granted != 0 || s.Refused != 0 {
		t.Errorf("%+v, want nothing counted", s)
	}
}

// TestProviderLimit: calls beyond the limit get 429 until the time that Retry-After tells, and a batch
// is admitted whole or not at all.
func TestProviderLimit(t *testing.T) {
	batch := func(n int) string {
		return `[` + strings.Repeat(rpc(getBlockReceipts, `["0x1"]`)+`,`, n-1) + rpc(getBlockReceipts, `["0x1"]`) + `]`
	}
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(chain{time.Second}, throughputCosts(), 0, 1)
		for i, step := range []struct {
			sleep  time.Duration
			body   string
			answer int // answers of a batch
			retry  string
		}{
			{0, batch(6), 6, ""},
			{500 * time.Millisecond, batch(5), 0, "10"}, // 9.5 s
			{0, batch(4), 4, ""},
			{0, rpc(blockNumber, "[]"), 0, "10"},
			{9 * time.Second, rpc(blockNumber, "[]"), 0, "1"},
			{500 * time.Millisecond, batch(6), 6, ""},
			{0, rpc(blockNumber, "[]"), 0, "1"},
		} {
			time.Sleep(step.sleep)
			w := post(p, step.body)
			if got := w.Header().Get("Retry-After"); got != step.retry {
				t.Fatalf("step %d: Retry-After %q, want %q", i, got, step.retry)
			}
			if step.retry != "" {
				var a answer
				if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != 429 || a.Error == nil || a.Error.Code != 429 || string(a.ID) != "7" {
					t.Fatalf("step %d: %d %s %v", i, w.Code, w.Body, err)
				}
				continue
			}
			var list []answer
			if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != 200 || len(list) != step.answer {
				t.Fatalf("step %d: %d, %d answers, %v", i, w.Code, len(list), err)
			}
		}

		var s stats
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/stats", nil))
		if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		want := stats{Granted: 8000, Peak: 5000, Refused: 4, ElapsedMS: 10_000, Units: map[string]int64{getBlockReceipts: 8000}}
		if !maps.Equal(s.Units, want.Units) || s.Granted != want.Granted || s.Peak != want.Peak || s.Refused != want.Refused || s.ElapsedMS != want.ElapsedMS {
			t.Errorf("stats %+v, want %+v", s, want)
		}
	})
}

// TestProviderDelay: a call is judged when it arrives, up to the jitter after it was sent, and a seed
// gives the same delays again.
func TestProviderDelay(t *testing.T) {
	const jitter = 80 * time.Millisecond
	delays := func(seed uint64) (list []time.Duration) {
		synctest.Test(t, func(*testing.T) {
			p := newProvider(chain{time.Second}, throughputCosts(), jitter, seed)
			for range 50 {
				sent := time.Now()
				post(p, rpc(blockNumber, "[]"))
				list = append(list, p.window.now-sent.Sub(p.begin))
			}
		})
		return list
	}
	first, again, other := delays(1), delays(1), delays(2)
	if fmt.Sprint(first) != fmt.Sprint(again) || fmt.Sprint(first) == fmt.Sprint(other) {
		t.Errorf("delays of seed 1: %v, again: %v, of seed 2: %v", first, again, other)
	}
	var longest time.Duration
	for _, d := range first {
		if d < 0 || d > jitter {
			t.Errorf("a delay of %v", d)
		}
		longest = max(longest, d)
	}
	if longest < jitter/2 {
		t.Errorf("the longest delay is %v", longest)
	}
}
