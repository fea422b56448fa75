package mockrpc

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func addFault(t testing.TB, p *Provider, f Fault) int64 {
	t.Helper()
	id, err := p.AddFault(f)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestRefusalsAreWhatTheyMean holds each answer to what budget makes of it.
func TestRefusalsAreWhatTheyMean(t *testing.T) {
	for _, name := range Refusals() {
		for _, body := range []string{calling("eth_blockNumber"), batch("eth_blockNumber", 2)} {
			p := newProvider(t, Config{})
			addFault(t, p, Fault{Refusal: name})
			want := refusals[name]
			if r := mustSend(t, p, "/v2/demo", body); r.status != want.status || r.class() != want.class {
				t.Errorf("%s: %d %s is %q, want %q", name, r.status, r.body, r.class(), want.class)
			}
			if want.code == 0 || name == "unauthorized" { // whose code says something else in a body alone
				continue
			}
			p.ClearFaults()
			addFault(t, p, Fault{Refusal: name, InBody: true})
			if r := mustSend(t, p, "/v2/demo", body); r.status != 200 || r.class() != want.class {
				t.Errorf("%s in a body: %d %s is %q, want %q", name, r.status, r.body, r.class(), want.class)
			}
			if s := p.Stats(); s.Total.Units != 0 || s.Total.Refused[want.class] != s.Total.Received {
				t.Errorf("%s: %+v", name, s)
			}
		}
	}
}

func TestFaultStatus(t *testing.T) {
	p := newProvider(t, Config{Accounts: []Account{{Name: "a", Keys: []string{"k1", "k2"}}, {Name: "b", Keys: []string{"k3"}}}})
	addFault(t, p, Fault{Status: 503, RetryAfter: 1500 * time.Millisecond, Count: 2, Key: "k1"})
	addFault(t, p, Fault{Status: 500, Account: "b", Method: "eth_call"})
	ask := func(key, method string, want int) {
		t.Helper()
		r := mustSend(t, p, "/v2/"+key, calling(method))
		if r.status != want || want == 503 && r.header.Get("Retry-After") != "2" {
			t.Errorf("%s of %s: %d %v, want %d", method, key, r.status, r.header, want)
		}
	}
	ask("k1", "eth_call", 503)
	ask("k2", "eth_call", 200)
	ask("k3", "eth_call", 500)
	ask("k3", "eth_chainId", 200)
	if left := p.Faults()[1].Count; left != 1 {
		t.Errorf("%d requests are left", left)
	}
	ask("k1", "eth_call", 503)
	ask("k1", "eth_call", 200)
	if !p.RemoveFault(2) || p.RemoveFault(2) || p.RemoveFault(1) {
		t.Error("fault 2 was there once, and fault 1 has ended")
	}
	ask("k3", "eth_call", 200)
	s := p.Stats()
	if s.Total.Refused[classOverloaded] != 2 || s.Total.Failed != 1 || s.Keys[0].Early != 2 {
		t.Errorf("%+v", s)
	}
	wantConsistent(t, s)
}

func TestFaultAnswers(t *testing.T) {
	p := newProvider(t, Config{FirstBlock: 100})
	id := addFault(t, p, Fault{ChainID: 5, Lag: 3})
	if chain, head := result[string](t, p, calling("eth_chainId")), result[string](t, p, calling("eth_blockNumber")); chain != "0x5" || head != "0x61" {
		t.Errorf("chain %s, head %s", chain, head)
	}
	addFault(t, p, Fault{Garbage: true, Status: 502, Count: 1})
	addFault(t, p, Fault{Garbage: true, Count: 1})
	for _, want := range []int{502, 200} {
		if r := mustSend(t, p, "/v2/demo", calling("eth_chainId")); r.status != want || json.Valid([]byte(r.body)) {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	p.RemoveFault(id)
	if chain := result[string](t, p, calling("eth_chainId")); chain != "0x1" {
		t.Errorf("chain %s after the faults", chain)
	}
	wantConsistent(t, p.Stats())
}

// TestLostResponse executes a transaction whose sender cannot know that: it sends it again.
func TestLostResponse(t *testing.T) {
	p := newProvider(t, Config{})
	addFault(t, p, Fault{Reset: true, Execute: true, Count: 1, Method: "eth_sendRawTransaction"})
	transaction := calling("eth_sendRawTransaction", "0x02f8")
	if _, err := send(p, "/v2/demo", transaction); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("error %v", err)
	}
	result[string](t, p, transaction)
	s := p.Stats()
	if want := (TransactionStats{Executed: 2, Distinct: 1, Duplicates: 1}); s.Transactions != want || s.Total.Units != 500 || s.Total.Failed != 1 {
		t.Errorf("%+v", s)
	}
	wantConsistent(t, s)
}

func TestResetConnection(t *testing.T) {
	p := newProvider(t, Config{})
	addFault(t, p, Fault{Reset: true})
	server := httptest.NewServer(p)
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post(server.URL+"/v2/demo", "application/json", strings.NewReader(calling("eth_chainId")))
	if err == nil {
		resp.Body.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("error %v", err)
	}
}

func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(t, Config{Rate: MaxRate})
		addFault(t, p, Fault{Refusal: "overloaded", On: 2 * second, Off: 3 * second})
		var got []int
		for range 11 {
			got = append(got, mustSend(t, p, "/v2/demo", calling("eth_chainId")).status/100)
			time.Sleep(second)
		}
		if want := []int{5, 5, 2, 2, 2, 5, 5, 2, 2, 2, 5}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(t, Config{Latency: 100 * time.Millisecond})
		addFault(t, p, Fault{Delay: second})
		addFault(t, p, Fault{Delay: second, Status: 500})
		began := time.Now()
		if r := mustSend(t, p, "/v2/demo", calling("eth_chainId")); r.status != 500 || time.Since(began) != 2100*time.Millisecond {
			t.Errorf("%d after %v", r.status, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://mock.invalid/v2/demo", strings.NewReader(calling("eth_chainId")))
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := p.RoundTrip(r); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, error %v", resp, err)
		}
	})
}

func TestAdministration(t *testing.T) {
	p := newProvider(t, Config{Accounts: []Account{{Name: "a", Keys: []string{"k1"}}}})
	admin := func(method, path, body string, want int) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://mock.invalid"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := p.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != want {
			t.Errorf("%s %s: %d %s, %v", method, path, resp.StatusCode, text, err)
		}
		return string(text)
	}
	const fault = `{"key":"k1","status":503,"count":3,"retry_after":"2s"}`
	if got, want := admin("POST", "/mock/faults", fault, 201), `{"id":1,"fault":`+fault+`}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if r := mustSend(t, p, "/v2/k1", calling("eth_chainId")); r.status != 503 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if got, want := admin("GET", "/mock/faults", "", 200), `[{"id":1,"fault":`+strings.Replace(fault, `"count":3`, `"count":2`, 1)+`}]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	var s Stats
	if err := json.Unmarshal([]byte(admin("GET", "/mock/stats", "", 200)), &s); err != nil || s.Keys[0].Total.Refused["overloaded"] != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	admin("DELETE", "/mock/faults/1", "", 204)
	admin("DELETE", "/mock/faults/1", "", 404)
	admin("DELETE", "/mock/faults/x", "", 400)
	admin("POST", "/mock/faults", `{"refusal":"unpaid","in_body":true,"on":"1s","off":"1s"}`, 201)
	admin("DELETE", "/mock/faults", "", 204)
	if got := admin("GET", "/mock/faults", "", 200); got != "[]" {
		t.Errorf("faults %s", got)
	}
	admin("PUT", "/mock/faults", "", 405)
	wrong := map[string]string{
		`{"status":503,"retry":"2s"}`:           `unknown field \"retry\"`,
		`{"status":99}`:                         `status 99: must be between 200 and 599`,
		`{"status":"503"}`:                      `status: must be a whole number`,
		`{"status":503.5}`:                      `status: must be a whole number`,
		`{"chain_id":-1}`:                       `chain_id: must be a whole number`,
		`{"refusal":429}`:                       `refusal: must be text`,
		`{"reset":1}`:                           `reset: must be true or false`,
		`{"status":503,"retry_after":2}`:        `retry_after: must be a time as text, such as \"2s\"`,
		`{"status":503,"retry_after":"2"}`:      `retry_after \"2\": must be a time with its unit`,
		`{"status":503,"retry_after":"-2s"}`:    `retry_after -2s: must be between 0 and`,
		`{"status":503,"reset":true}`:           `status, refusal, reset, garbage: at most one of them`,
		`{"key":"k1"}`:                          `garbage, delay, chain_id, lag: at least one of them`,
		`{"status":503,"key":"k2"}`:             `key \"k2\": no account has this key; there are k1`,
		`{"status":503,"account":"b"}`:          `account \"b\": there is no such account; there are a`,
		`{"refusal":"no"}`:                      `refusal \"no\": there are daily-quota, monthly-capacity, overloaded, past-due, rate, unauthorized, unpaid`,
		`{"refusal":"past-due","in_body":true}`: `in_body true: is for a refusal with an error of JSON-RPC`,
		`{"delay":"1s","execute":true}`:         `execute true: is for a fault that ends a request`,
		`{"delay":"1s","retry_after":"1s"}`:     `retry_after 1s: is for a status or a refusal`,
		`{"delay":"1h"}`:                        `delay 1h0m0s: must be between 0 and 10m0s`,
		`{"delay":"1s","on":"1s"}`:              `on, off: must both be set, or none`,
		`{"delay":"1s","count":-1}`:             `count -1: must not be negative`,
		`[]`:                                    `a fault is an object, such as`,
		strings.Repeat(" ", maxFaultBody+1):     `too large`,
	}
	for body, want := range wrong {
		if got := admin("POST", "/mock/faults", body, 400); !strings.Contains(got, want) || wireNames.MatchString(got) {
			t.Errorf("%.50s: %s, want %s", body, got, want)
		}
	}
	for range maxFaults {
		addFault(t, p, Fault{Delay: 1, Key: "k1"})
	}
	if _, err := p.AddFault(Fault{Delay: 1}); err == nil {
		t.Error("one fault too many")
	}
}

// wireNames are names of Go's fields, which those who send JSON do not know.
var wireNames = regexp.MustCompile(`Status|Refusal|InBody|RetryAfter|Delay|ChainID|wireFault|plainFault|Go `)

// FuzzCalls sends foreign bytes as calls and as faults. Each response is JSON, or one of a fault, and the stats
// stay consistent and small.
func FuzzCalls(f *testing.F) {
	f.Add([]byte(calling("eth_getBlockByNumber", "0x10", true)), []byte(`{"status":503,"count":1}`))
	f.Add([]byte(batch("eth_getLogs", 2)), []byte(`{"refusal":"daily-quota","in_body":true}`))
	f.Add([]byte(calling("eth_getLogs", map[string]string{"fromBlock": "0xffffffffffffffff", "toBlock": "0xffffffffffffffff"})), []byte(`{"lag":18446744073709551615,"chain_id":18446744073709551615}`))
	f.Add([]byte(`[{"id":1e999,"method":"\u0000","params":[[[]]]},{"method":"x"}]`), []byte(`{"reset":true,"execute":true}`))
	f.Add([]byte(`{"id":null,"method":"eth_getTransactionReceipt","params":["0x`+strings.Repeat("é", 32)+`"]}`), []byte(`{"garbage":true,"on":"1ns","off":"1ns"}`))
	f.Fuzz(func(t *testing.T, calls, fault []byte) {
		p := newProvider(t, Config{Rate: MaxRate, PartialBatches: len(calls)%2 == 0})
		for _, add := range []bool{false, true} {
			var added Fault
			if add && json.Unmarshal(fault, &added) == nil {
				added.Delay = 0
				_, _ = p.AddFault(added)
			}
			r, err := send(p, "/v2/demo", string(calls))
			switch {
			case err != nil && !errors.Is(err, syscall.ECONNRESET):
				t.Fatal(err)
			case err == nil && !add && r.status != 204 && !json.Valid([]byte(r.body)):
				t.Errorf("%d %q", r.status, r.body)
			}
		}
		s := p.Stats()
		wantConsistent(t, s)
		if s.Malformed+s.Tries() != 2 || len(s.Methods) > len(methods)+1 {
			t.Errorf("%+v", s)
		}
	})
}
