package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/golden"
	"github.com/weirlimit/weir/internal/storeapi"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/weirhttp"
)

// TestConversation asks one server, over real connections, one thing after
// another; the clock stands still. What begins with / is another path than /v1/check.
// $ID is the last reservation's.
func TestConversation(t *testing.T) {
	tests := []struct {
		file  string
		lines []string
	}{
		{"conversation.golden", []string{
			`{"policy":"default","key":"alice"}`,
			`{"policy":"default","key":"alice","cost":0}`,
			`{"policy":"default","key":"alice","cost":90,"peek":true}`,
			`{"policy":"default","key":"alice","cost":90}`,
			`{"policy":"default","key":"alice","cost":10}`,
			`{"policy":"default","key":"alice","cost":9}`,
			`{"policy":"default","key":"alice","cost":101}`,
			`{"policy":"default","key":"alice","cost":1,"peek":true}`,
			`{"policy":"default","key":"bob"}`,
			`{"policy":"default","key":""}`,
			`{"policy":"default","key":"bob","keys":{"nobody":"asks"},"max_wait_ms":0}`,
			`{"policy":"default","key":"alice","max_wait_ms":9}`,
			`{"policy":"api","key":"alice","cost":10}`,
			`{"policy":"api","key":"alice","cost":1}`,
			`{"policy":"api","key":"alice","cost":3}`,
			`{"policy":"api","key":"partner-x","cost":11}`,
			`{ "cost" : 2147483647 , "key":"\u0061lice" , "policy":"\/\\" }`,
			`{"policy":"slots","key":"alice"}`,
			`{"policy":"default"}`,
			`{"policy":"quiet","key":"alice","cost":1000}`,
		}},
		{"mixed.golden", []string{
			`{"policy":"mixed","key":"alice"}`,
			`{"policy":"mixed","key":"alice","keys":{"ip":"192.0.2.1"}}`,
			`{"policy":"mixed","key":"alice","keys":{"ip":"192.0.2.1"},"cost":{"tokens":1000}}`,
			`{"policy":"mixed","key":"bob","keys":{"ip":"192.0.2.2"},"cost":{"tokens":1001,"requests":0}}`,
			`{"policy":"mixed","key":"alice","keys":{"ip":"192.0.2.1"},"cost":{"tokens":1}}`,
			`{"policy":"mixed","key":"alice","keys":{"ip":"192.0.2.1"}}`,
			`{"policy":"mixed","key":"carol","keys":{"ip":"192.0.2.1"}}`,
			`{"policy":"mixed","key":"alice","keys":{"ip":"192.0.2.3"},"peek":true}`,
			`{"policy":"mixed","key":"alice","keys":{"ip":"192.0.2.3"},"cost":{"dollars":1}}`,
		}},
		{"batch.golden", []string{
			`/v1/check/batch {"checks":[]}`,
			`/v1/check/batch {"checks":[{"policy":"default","key":"a","cost":60},{"policy":"default","key":"a","cost":60},{"policy":"default","key":"a","cost":40}]}`,
			`/v1/check/batch {"atomic":true,"checks":[{"policy":"default","key":"b","cost":60},{"policy":"default","key":"b","cost":60}]}`,
			`/v1/check/batch {"atomic":true,"checks":[{"policy":"default","key":"b","cost":60},{"policy":"api","key":"b","cost":2}]}`,
			`/v1/check/batch {"atomic":true,"checks":[{"policy":"default","key":"c","cost":60},{"policy":"api","key":"c","cost":11}]}`,
			`/v1/check/batch {"checks":[{"policy":"default","key":"c","peek":true},{"policy":"mixed","key":"c","keys":{"ip":"x"}},{"policy":"quiet","key":"c"}]}`,
			`/v1/check/batch {"checks":[{"policy":"default","key":"d"},{"policy":"nope","key":"d"}]}`,
			`/v1/check/batch {"checks":[{"policy":"default","key":"d"},{"policy":"slots","key":"d"}]}`,
			`/v1/check/batch {"checks":[{"policy":"default","key":"d"},{"policy":"mixed","key":"d"}]}`,
			`/v1/check/batch {"checks":[{"policy":"default","key":"d"},{"policy":"default","key":"d","cost":-1}]}`,
			`/v1/check/batch {"checks":[{"policy":"default","key":"d"},{"key":"d"}]}`,
			`/v1/check/batch {"checks":[{"policy":"default","key":"d","max_wait_ms":5}]}`,
			`/v1/check/batch {"atomic":true,"checks":[{"policy":"default","key":"d","peek":true}]}`,
			`/v1/check/batch {"checks":{}}`,
			`/v1/check/batch {}`,
			`{"policy":"default","key":"d","peek":true,"cost":100}`,
		}},
		{"classes.golden", []string{
			`{"policy":"jobs","key":"a","class":"realtime","cost":5}`,
			`{"policy":"jobs","key":"a","class":"realtime","cost":2}`,
			`{"policy":"jobs","key":"a","class":"realtime","cost":7}`,
			`{"policy":"jobs","key":"a","class":"backfill","cost":4,"peek":true}`,
			`{"policy":"jobs","key":"a","cost":3}`,
			`{"policy":"jobs","key":"a","class":"","cost":2}`,
			`{"policy":"jobs","key":"a","class":"urgent"}`,
			`{"policy":"jobs","key":"a","class":"Realtime"}`,
			`{"policy":"default","key":"a","class":"realtime"}`,
			`{"policy":"default","key":"a","class":""}`,
			`{"policy":"jobs","key":"a","class":1}`,
			`/v1/check/batch {"checks":[{"policy":"jobs","key":"b","class":"realtime","cost":6},{"policy":"jobs","key":"b","class":"backfill","cost":4},{"policy":"jobs","key":"b"},{"policy":"default","key":"b"}]}`,
			`/v1/check/batch {"atomic":true,"checks":[{"policy":"jobs","key":"c","class":"realtime","cost":6},{"policy":"jobs","key":"c","class":"backfill","cost":5}]}`,
			`/v1/check/batch {"checks":[{"policy":"jobs","key":"c","class":"realtime"},{"policy":"jobs","key":"c","class":"urgent"}]}`,
			`{"policy":"jobs","key":"c","class":"realtime","cost":6,"peek":true}`,
			`/v1/reserve {"policy":"jobs","key":"d","class":"realtime","cost":6}`,
			`{"policy":"jobs","key":"d","class":"realtime"}`,
			`{"policy":"jobs","key":"d","class":"backfill"}`,
			`/v1/commit {"id":"$ID","used":2}`,
			`{"policy":"jobs","key":"d","class":"realtime","peek":true}`,
			`{"policy":"jobs","key":"d","class":"backfill","peek":true}`,
			`/v1/reserve {"policy":"jobs","key":"d","class":"urgent"}`,
			`/v1/commit {"id":"$ID","class":"realtime"}`,
		}},
		{"reserve.golden", []string{
			`/v1/reserve {"policy":"default","key":"a","cost":60}`,
			`/v1/reserve {"policy":"default","key":"a","cost":60,"ttl_ms":5000}`,
			`/v1/reserve {"policy":"default","key":"b","cost":60,"ttl_ms":5000}`,
			`/v1/renew {"id":"$ID","ttl_ms":7000}`,
			`/v1/commit {"id":"$ID","used":20}`,
			`/v1/commit {"id":"$ID","used":20}`,
			`/v1/cancel {"id":"$ID"}`,
			`/v1/renew {"id":"$ID"}`,
			`{"policy":"default","key":"b","peek":true}`,
			`/v1/reserve {"policy":"default","key":"c","cost":60}`,
			`/v1/commit {"id":"$ID","used":90}`,
			`/v1/reserve {"policy":"default","key":"d","cost":60}`,
			`/v1/commit {"id":"$ID"}`,
			`/v1/reserve {"policy":"slots","key":"a"}`,
			`/v1/reserve {"policy":"slots","key":"a"}`,
			`/v1/cancel {"id":"$ID"}`,
			`/v1/reserve {"policy":"slots","key":"a"}`,
			`/v1/reserve {"policy":"slots","key":"a"}`,
			`/v1/reserve {"policy":"mixed","key":"a","keys":{"ip":"x"},"cost":{"tokens":900}}`,
			`/v1/commit {"id":"$ID","used":{"tokens":100}}`,
			`/v1/reserve {"policy":"mixed","key":"a","keys":{"ip":"x"},"cost":{"tokens":901}}`,
			`/v1/reserve {"policy":"quiet","key":"a"}`,
			`/v1/cancel {"id":"$ID"}`,
			`/v1/reserve {"policy":"default","key":"a","ttl_ms":3600001}`,
			`/v1/reserve {"policy":"nope","key":"a"}`,
			`/v1/commit {"id":"nonsense"}`,
			`/v1/commit {"used":1}`,
			`/v1/commit {"id":"$ID","used":-1}`,
			`/v1/commit {"id":"$ID","used":{"tokens":"x"}}`,
			`/v1/cancel {"id":"$ID","used":1}`,
			`/v1/check {"policy":"default","key":"w","cost":60}`,
			`/v1/reserve {"policy":"default","key":"w","cost":60,"max_wait_ms":9}`,
			`/v1/reserve {"policy":"default","key":"w","cost":40,"max_wait_ms":9}`,
			`/v1/reserve {"policy":"default","key":"w","cost":101,"max_wait_ms":9}`,
			`/v1/reserve {"policy":"default","key":"w","max_wait_ms":10001}`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			srv := httptest.NewServer(handler(t, frozenTable(t)))
			defer srv.Close()
			var got bytes.Buffer
			id := ""
			for _, line := range tt.lines {
				path, body, ok := strings.Cut(line, " ")
				if !ok || path[0] != '/' {
					path, body = "/v1/check", line
				}
				status, answer := post(t, srv.Client(), srv.URL+path, strings.ReplaceAll(body, "$ID", id))
				if m := ticketID.FindSubmatch(answer); m != nil {
					id = string(m[1])
				}
				fmt.Fprintf(&got, "> %s\n%d %s", line, status, ticketID.ReplaceAll(answer, []byte(`"id":"…"`)))
			}
			golden.Check(t, "testdata/"+tt.file, got.Bytes())
		})
	}
}

var ticketID = regexp.MustCompile(`"id":"([A-Za-z0-9_-]+)"`)

// TestHeaders holds what HTTP clients read.
func TestHeaders(t *testing.T) {
	f := newFixture(t, frozenTable(t))
	var got bytes.Buffer
	for _, x := range []struct {
		legacy weirhttp.Legacy
		body   string
	}{
		{weirhttp.LegacyOff, `{"policy":"api","key":"alice","cost":4}`},
		{weirhttp.LegacyOff, `{"policy":"api","key":"alice","cost":6}`},
		{weirhttp.LegacyOff, `{"policy":"api","key":"alice"}`},
		{weirhttp.LegacyOff, `{"policy":"api","key":"alice","cost":11}`},
		{weirhttp.LegacyDelta, `{"policy":"api","key":"alice"}`},
		{weirhttp.LegacyDelta, `{"policy":"mixed","key":"alice","keys":{"ip":"x"},"cost":{"tokens":3}}`},
		{weirhttp.LegacyOff, `{"policy":"api","key":"partner-a"}`},
		{weirhttp.LegacyOff, `{"policy":"quiet","key":"alice"}`},
		{weirhttp.LegacyOff, `{"policy":"nope","key":"alice"}`},
	} {
		f.state.Legacy = x.legacy
		w := serve(f.handler(), "POST", "/v1/check", x.body)
		fmt.Fprintf(&got, "> %s\n%d\n", x.body, w.Code)
		w.Header().Write(&got)
	}
	golden.Check(t, "testdata/headers.golden", bytes.ReplaceAll(got.Bytes(), []byte("\r"), nil))
}

func TestCheckRefusesBadInput(t *testing.T) {
	const ok = `{"policy":"default","key":"alice"`
	tests := []struct {
		name, body string
		status     int
		detail     string // part of it
	}{
		{"empty", ``, 400, "at byte 0: a check is a JSON object, not nothing"},
		{"null", ` null`, 400, "at byte 1: a check is a JSON object, not null"},
		{"array", `[]`, 400, "not an array"},
		{"byte order mark", "\ufeff" + ok + `}`, 400, "at byte 0: a check is a JSON object, not something else"},
		{"no fields", `{}`, 400, `"policy" is missing`},
		{"no policy", `{"key":"alice"}`, 400, `"policy" is missing`},
		{"no key", `{"policy":"default"}`, 400, `"key" is missing`},
		{"wait too long", ok + `,"max_wait_ms":10001}`, 400, `"max_wait_ms" must be at most 10000`},
		{"keys is a list", ok + `,"keys":[]}`, 400, `"keys" is a JSON object, not an array`},
		{"keys twice", ok + `,"keys":{"ip":"a","ip":"b"}}`, 400, `"keys" has "ip" twice`},
		{"a value of keys is a number", ok + `,"keys":{"ip":1}}`, 400, `a value of "keys" must be a string, not a number`},
		{"many keys", ok + `,"keys":{` + manyKeys(17) + `}}`, 400, `"keys" may have 16 entries`},
		{"cost in an unknown unit", ok + `,"cost":{"tokens":1}}`, 400, `"cost" has the unit "tokens", which no limit of the policy counts`},
		{"cost in negative units", ok + `,"cost":{"requests":-1}}`, 400, `a value of "cost" must not be negative`},
		{"attribute is missing", `{"policy":"mixed","key":"a"}`, 400, `"keys" lacks "ip", by which the policy limits`},
		{"unknown field", ok + `,"colour":"x"}`, 400, `at byte 34: unknown field "colour"; a check has policy, key, keys, cost, class, method, methods, peek, max_wait_ms and shadow`},
		{"unknown class", ok + `,"class":"x"}`, 400, `"class" is "x", and the policy has no classes`},
		{"class of another policy", `{"policy":"jobs","key":"a","class":"x"}`, 400, `"class" is "x", which the policy does not have; it has realtime, backfill`},
		{"class is null", ok + `,"class":null}`, 400, `"class" must be a string, not null`},
		{"other letter case", `{"Policy":"default","key":"alice"}`, 400, `at byte 1: unknown field "Policy" (did you mean "policy"?)`},
		{"folded letter", ok + `,"\u212aey":"bob"}`, 400, `unknown field "\u212aey"`},
		{"escaped name twice", ok + `,"k\u0065y":"bob"}`, 400, `at byte 34: field "key" stands there twice`},
		{"twice the same", ok + `,"key":"alice"}`, 400, `field "key" stands there twice`},
		{"long unknown field", ok + `,"` + strings.Repeat("x", 70) + `":1}`, 400, strings.Repeat("x", 64) + `"…;`},
		{"control in a name", ok + `,"a\r\nb":1}`, 400, `unknown field "a\r\nb"`},
		{"trailing text", ok + `} x`, 400, "at byte 35: nothing may follow the object"},
		{"second object", ok + `}{}`, 400, "nothing may follow the object"},
		{"trailing comma", ok + `,}`, 400, "at byte 34: expected the name of a field, in quotes"},
		{"no comma", ok + ` "cost":1}`, 400, "expected , or } after a value"},
		{"no colon", `{"policy" "default"}`, 400, "at byte 10: expected : after a name"},
		{"open object", ok, 400, "expected , or } after a value"},
		{"open string", `{"policy":"def`, 400, `the text ends inside "policy"`},
		{"open string after an escape", `{"policy":"d\n`, 400, `the text ends inside "policy"`},
		{"policy is a number", `{"policy":1,"key":"a"}`, 400, `at byte 10: "policy" must be a string, not a number`},
		{"key is null", `{"policy":"default","key":null}`, 400, `"key" must be a string, not null`},
		{"key is an object", `{"policy":"default","key":{}}`, 400, `"key" must be a string, not an object`},
		{"key is not UTF-8", "{\"policy\":\"default\",\"key\":\"a\xff\"}", 400, `at byte 28: "key" is not UTF-8`},
		{"key has a raw newline", "{\"policy\":\"default\",\"key\":\"a\n\"}", 400, `control character: write it as \u000a`},
		{"half a pair", `{"policy":"default","key":"\ud83dx"}`, 400, `at byte 27: "key" has half of a surrogate pair`},
		{"low half first", `{"policy":"default","key":"\ude00\ud83d"}`, 400, `half of a surrogate pair`},
		{"bad escape", `{"policy":"default","key":"\x41"}`, 400, `a backslash that begins no escape`},
		{"short escape", `{"policy":"default","key":"\u12"}`, 400, `a backslash that begins no escape`},
		{"signed escape", `{"policy":"default","key":"\u+123"}`, 400, `a backslash that begins no escape`},
		{"key of 257 bytes", `{"policy":"default","key":"` + strings.Repeat("k", 257) + `"}`, 400, `at byte 26: "key" has 257 bytes: at most 256 fit`},
		{"cost is a string", ok + `,"cost":"1"}`, 400, `at byte 41: "cost" must be an integer, not a string`},
		{"cost is null", ok + `,"cost":null}`, 400, `"cost" must be an integer, not null`},
		{"cost is negative", ok + `,"cost":-1}`, 400, `"cost" must not be negative`},
		{"cost is minus nothing", ok + `,"cost":-0}`, 400, `"cost" must not be negative`},
		{"cost with a fraction", ok + `,"cost":1.5}`, 400, `"cost" must be an integer, written in digits`},
		{"cost with a zero fraction", ok + `,"cost":1.0}`, 400, `"cost" must be an integer, written in digits`},
		{"cost with an exponent", ok + `,"cost":1e3}`, 400, `"cost" must be an integer, written in digits`},
		{"cost with a leading zero", ok + `,"cost":01}`, 400, `"cost" must not begin with 0`},
		{"cost is 2^31", ok + `,"cost":2147483648}`, 400, `"cost" must be at most 2147483647`},
		{"cost is 2^64+1", ok + `,"cost":18446744073709551617}`, 400, `"cost" must be at most 2147483647`},
		{"cost is NaN", ok + `,"cost":NaN}`, 400, `"cost" must be an integer, not something else`},
		{"cost then letters", ok + `,"cost":1x}`, 400, `expected , or } after a value`},
		{"method of a policy", ok + `,"method":"eth_call"}`, 400, `"method" is for budgets`},
		{"method and methods", ok + `,"method":"eth_call","methods":["a"]}`, 400, `say one of the two`},
		{"no methods", ok + `,"methods":[]}`, 400, `at byte 44: "methods" is empty`},
		{"methods is a string", ok + `,"methods":"a"}`, 400, `"methods" is a list, not a string`},
		{"method is a list", ok + `,"method":["a"]}`, 400, `"method" must be a string, not an array`},
		{"a method is a number", ok + `,"methods":["a",1]}`, 400, `a value of "methods" must be a string, not a number`},
		{"long method", ok + `,"method":"` + strings.Repeat("m", 257) + `"}`, 400, `"method" has 257 bytes: at most 256 fit`},
		{"many methods", ok + `,"methods":["m"` + strings.Repeat(`,"m"`, 1000) + `]}`, 400, `"methods" may have 1000 entries`},
		{"peek is a number", ok + `,"peek":1}`, 400, `"peek" must be true or false, not a number`},
		{"peek is nearly true", ok + `,"peek":trueish}`, 400, `expected , or } after a value`},
		{"no such policy", `{"policy":"nope","key":"alice"}`, 404, `no policy is called "nope"`},
		{"policy in other letters", `{"policy":"Default","key":"alice"}`, 404, `no policy is called "Default"`},
		{"body of 64 KiB", ok + `}` + strings.Repeat(" ", maxBody-34), 200, ""},
		{"body of 64 KiB and 1", ok + `}` + strings.Repeat(" ", maxBody-33), 413, "a body may have 65536 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			limiter := &scripted{}
			w := serve(handler(t, limiter), "POST", "/v1/check", tt.body)
			if tt.status == http.StatusOK {
				if w.Code != http.StatusOK || limiter.calls != 1 {
					t.Errorf("status %d after %d calls, want 200 after one: %s", w.Code, limiter.calls, w.Body)
				}
				return
			}
			wantProblem(t, w, tt.status, tt.detail)
			if limiter.calls != 0 {
				t.Errorf("the limiter was asked %d times, want never", limiter.calls)
			}
		})
	}
}

// manyKeys returns n entries of an object.
func manyKeys(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`"k%d":"v"`, i))
	}
	return strings.Join(list, ",")
}

// wantProblem checks that w is a problem whose detail has a part.
func wantProblem(t *testing.T, w *httptest.ResponseRecorder, status int, detail string) {
	t.Helper()
	var p weirhttp.Problem
	dec := json.NewDecoder(w.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		t.Fatal(err)
	}
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("content type = %q", got)
	}
	if w.Code != status || p.Status != status || p.Title != http.StatusText(status) || p.Type != weirhttp.TypeBlank {
		t.Errorf("status %d with problem %+v, want %d", w.Code, p, status)
	}
	if !strings.Contains(p.Detail, detail) {
		t.Errorf("detail = %q, want %q in it", p.Detail, detail)
	}
}

func TestCheckRefusesCompressedBodies(t *testing.T) {
	limiter := &scripted{}
	w := serve(handler(t, limiter), "POST", "/v1/check", `{"policy":"default","key":"a"}`, "Content-Encoding", "gzip")
	wantProblem(t, w, http.StatusUnsupportedMediaType, "Content-Encoding")
	if limiter.calls != 0 {
		t.Error("the limiter was asked")
	}
}

func TestCheckWithoutDecision(t *testing.T) {
	const secret = "key-that-stays-secret"
	tests := []struct {
		name   string
		err    error
		status int
		detail string
		logged string
	}{
		{"store down", errors.New("dial: refused"), 503, "no decision could be made", `error="dial: refused"`},
		{"reserve only", fmt.Errorf("wrapped: %w", weir.ErrReserveOnly), 400, `policy "default" limits concurrency`, ""},
		{"cost", storeapi.CheckCost(-1), 400, "cost -1", ""},
		{"key", storeapi.CheckKey(strings.Repeat("k", 300)), 400, "key of 300 bytes", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			f := newFixture(t, &scripted{err: tt.err})
			f.log = slog.New(slog.NewTextHandler(&log, nil))
			for _, peek := range []bool{false, true} {
				body := fmt.Sprintf(`{"policy":"default","key":%q,"peek":%v}`, secret, peek)
				wantProblem(t, serve(f.handler(), "POST", "/v1/check", body), tt.status, tt.detail)
			}
			if !strings.Contains(log.String(), tt.logged) || (tt.logged == "") != (log.Len() == 0) {
				t.Errorf("log = %q, want %q in it", log.String(), tt.logged)
			}
			if strings.Contains(log.String(), secret) {
				t.Errorf("the log shows the key: %q", log.String())
			}
		})
	}
}

// TestBatchIsObserved: each decision of a batch is observed, the first with how long all took.
func TestBatchIsObserved(t *testing.T) {
	for _, atomic := range []bool{false, true} {
		f := newFixture(t, frozenTable(t))
		body := fmt.Sprintf(`{"atomic":%v,"checks":[{"policy":"default","key":"a"},{"policy":"default","key":"b","cost":2}]}`, atomic)
		if w := serve(f.handler(), "POST", "/v1/check/batch", body); w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if len(f.records) != 2 || f.records[0].Key != "a" || f.records[1].Key != "b" || f.records[1].Cost != 2 {
			t.Fatalf("atomic %v: records %+v", atomic, f.records)
		}
		if f.records[0].Took < 0 || f.records[1].Took != ruleset.Untimed {
			t.Errorf("atomic %v: took %v and %v, want one measurement", atomic, f.records[0].Took, f.records[1].Took)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	h := New(Config{
		Core: &call.Core{
			Engine:  newFixture(b, &scripted{decision: weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: 100, Remaining: 99}}).engine,
			Observe: func(*ruleset.Record) {}, Log: slog.New(slog.DiscardHandler),
		},
		State: func() func() *State {
			s := newFixture(b, &scripted{}).state
			return func() *State { return s }
		}(),
	})
	r := httptest.NewRequest("POST", "http://localhost/v1/check", nil)
	body := strings.NewReader("")
	w := discard{http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		body.Reset(`{"policy":"default","key":"alice"}`)
		r.Body = readCloser{body}
		h.ServeHTTP(w, r)
	}
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// A body that does not say how long it is is bounded all the same.
func TestBodyOfUnknownLength(t *testing.T) {
	h := handler(t, &scripted{})
	for _, tt := range []struct{ spaces, status int }{{0, 200}, {maxBody, 413}} {
		body := `{"policy":"default","key":"a"}` + strings.Repeat(" ", tt.spaces)
		r := httptest.NewRequest("POST", "/v1/check", io.MultiReader(strings.NewReader(body)))
		w := httptest.NewRecorder()
		if r.ContentLength >= 0 {
			t.Fatalf("the length is %d, and should not be known", r.ContentLength)
		}
		if h.ServeHTTP(w, r); w.Code != tt.status {
			t.Errorf("%d bytes: %d %s, want %d", len(body), w.Code, w.Body, tt.status)
		}
	}
}

// Nothing of a limit in shadow reaches a client, in the answer or in headers, unless it asks.
func TestShadowIsHidden(t *testing.T) {
	f := newFixture(t, frozenTable(t))
	f.state.Legacy = weirhttp.LegacyDelta
	h := f.handler()
	const check = `{"policy":"mixed","key":"alice","keys":{"ip":"192.0.2.1"}%s}`
	serve(h, "POST", "/v1/check", fmt.Sprintf(check, ""))
	w := serve(h, "POST", "/v1/check", fmt.Sprintf(check, "")) // the trial limit would refuse
	if text := fmt.Sprint(w.Header(), w.Body); strings.Contains(text, "trial") || strings.Contains(text, "shadow") || !strings.Contains(text, `"allowed":true`) {
		t.Errorf("%s", text)
	}
	w = serve(h, "POST", "/v1/check", fmt.Sprintf(check, `,"shadow":true`))
	if want := `"shadow":[{"limited_by":"mixed.trial","limit":1,"remaining":0,"retry_after_ms":1000}]}`; !strings.Contains(w.Body.String(), want) {
		t.Errorf("%s lacks %s", w.Body, want)
	}
	w = serve(h, "POST", "/v1/check/batch", fmt.Sprintf(`{"checks":[`+strings.ReplaceAll(check, "192.0.2.1", "192.0.2.2")+`,{"policy":"default","key":"a"}]}`, `,"shadow":true`))
	if text := w.Body.String(); strings.Count(text, `"shadow":[{`) != 1 || strings.Count(text, `"shadow"`) != 1 {
		t.Errorf("%s", text)
	}
}

// A policy in shadow, and a key outside the rollout, have no rate limit headers at all.
func TestShadowHasNoHeaders(t *testing.T) {
	f := newFixture(t, frozenTable(t))
	limits := []ruleset.Limit{{Limit: weir.Limit{Rate: 1, Per: weir.Every(time.Hour)}}}
	rules, err := ruleset.Compile([]ruleset.Policy{
		{Name: "shadow", Mode: ruleset.Shadow, Limits: limits}, {Name: "rollout", Rollout: 1, Limits: limits},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.state.Rules, f.state.Legacy = rules, weirhttp.LegacyDelta
	h := f.handler()
	for _, policy := range []string{"shadow", "rollout"} {
		for range 2 {
			w := serve(h, "POST", "/v1/check", fmt.Sprintf(`{"policy":%q,"key":"alice"}`, policy))
			for name := range w.Header() {
				if strings.Contains(strings.ToLower(name), "ratelimit") {
					t.Errorf("%s: %s: %v", policy, name, w.Header()[name])
				}
			}
			if want := `"limit":0,"remaining":0,"retry_after_ms":0,"reset_after_ms":0,"reason":"admitted"}`; !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s: %s", policy, w.Body)
			}
		}
	}
}

// A reservation waits for one that is settled, and its answer says how long. Time is virtual, so that is exact.
func TestReserveWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, apitest.Table(t, nil))
		h := f.handler()
		var ids []string
		for range 2 {
			held := serve(h, "POST", "/v1/reserve", `{"policy":"slots","key":"a"}`)
			ids = append(ids, string(ticketID.FindSubmatch(held.Body.Bytes())[1]))
		}
		time.AfterFunc(1250*time.Millisecond, func() { serve(h, "POST", "/v1/cancel", `{"id":"`+ids[0]+`"}`) })
		w := serve(h, "POST", "/v1/reserve", `{"policy":"slots","key":"a","max_wait_ms":5000,"ttl_ms":1000}`)
		got := ticketID.ReplaceAllString(w.Body.String(), `"id":"…"`)
		want := `{"allowed":true,"policy":"slots","limited_by":"","limit":2,"remaining":0,"retry_after_ms":0,"reset_after_ms":58750,"reason":"admitted","delay_ms":1250,"id":"…","expires_in_ms":1000}` + "\n"
		if w.Code != 200 || got != want {
			t.Errorf("%d %s, want %s", w.Code, got, want)
		}
		if r := f.records[2]; r.Waited != 1250*time.Millisecond || r.Took != 0 {
			t.Errorf("took %v, waited %v", r.Took, r.Waited)
		}
		w = serve(h, "POST", "/v1/reserve", `{"policy":"slots","key":"a","cost":2,"max_wait_ms":3000}`)
		if got := w.Body.String(); w.Code != 200 || !strings.Contains(got, `"allowed":false`) || !strings.Contains(got, `"reason":"too_late","delay_ms":3000,"id":""`) {
			t.Errorf("nobody settles: %d %s", w.Code, got)
		}
	})
}
