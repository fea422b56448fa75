package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
)

// TestConversation asks one server, over real connections, one thing after
// another; the clock stands still.
func TestConversation(t *testing.T) {
	srv := httptest.NewServer(New(config(t, frozenTable(t))))
	defer srv.Close()
	var got bytes.Buffer
	for _, body := range []string{
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
		`{"policy":"api","key":"alice","cost":10}`,
		`{"policy":"api","key":"alice","cost":1}`,
		`{"policy":"api","key":"alice","cost":3}`,
		`{ "cost" : 2147483647 , "key":"\u0061lice" , "policy":"\/\\" }`,
		`{"policy":"slots","key":"alice"}`,
		`{"policy":"default"}`,
	} {
		status, answer := post(t, srv.Client(), srv.URL+"/v1/check", body)
		fmt.Fprintf(&got, "> %s\n%d %s", body, status, answer)
	}
	golden(t, "conversation.golden", got.Bytes())
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
		{"unknown field", ok + `,"class":"x"}`, 400, `at byte 34: unknown field "class"; a check has policy, key, cost and peek`},
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
			w := serve(New(config(t, limiter)), "POST", "/v1/check", tt.body)
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

// wantProblem checks that w is a problem whose detail has a part.
func wantProblem(t *testing.T, w *httptest.ResponseRecorder, status int, detail string) {
	t.Helper()
	var p problem
	dec := json.NewDecoder(w.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		t.Fatal(err)
	}
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("content type = %q", got)
	}
	if w.Code != status || p.Status != status || p.Title != http.StatusText(status) || p.Type != "about:blank" {
		t.Errorf("status %d with problem %+v, want %d", w.Code, p, status)
	}
	if !strings.Contains(p.Detail, detail) {
		t.Errorf("detail = %q, want %q in it", p.Detail, detail)
	}
}

func TestCheckRefusesCompressedBodies(t *testing.T) {
	limiter := &scripted{}
	w := serve(New(config(t, limiter)), "POST", "/v1/check", `{"policy":"default","key":"a"}`, "Content-Encoding", "gzip")
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
		{"cost", &weir.CostError{Cost: -1}, 400, "cost -1", ""},
		{"key", &weir.KeyError{Bytes: 300}, 400, "key of 300 bytes", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			cfg := config(t, &scripted{err: tt.err})
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			for _, peek := range []bool{false, true} {
				body := fmt.Sprintf(`{"policy":"default","key":%q,"peek":%v}`, secret, peek)
				wantProblem(t, serve(New(cfg), "POST", "/v1/check", body), tt.status, tt.detail)
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

func TestKeysInLogsAndHeaders(t *testing.T) {
	const key = "evil\r\nSet-Cookie: x=1\nlevel=ERROR"
	tests := []struct {
		level slog.Level
		lines int
	}{{slog.LevelInfo, 0}, {slog.LevelDebug, 1}}
	for _, tt := range tests {
		var log bytes.Buffer
		cfg := config(t, frozenTable(t))
		cfg.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: tt.level}))
		body, _ := json.Marshal(map[string]any{"policy": "default", "key": key})
		w := serve(New(cfg), "POST", "/v1/check", string(body))
		if got := strings.Count(log.String(), "\n"); got != tt.lines || strings.Count(log.String(), "level=DEBUG") != tt.lines {
			t.Errorf("at %v there are %d lines, want %d: %q", tt.level, got, tt.lines, log.String())
		}
		if h := fmt.Sprint(w.Header()); strings.Contains(h, "evil") || strings.Contains(h, "Cookie") {
			t.Errorf("headers = %s, want no key in them", h)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	limiter := &scripted{decision: weir.Decision{Allowed: true, Limit: 100, Remaining: 99}}
	p, err := weir.NewPolicy("default", weir.Limit{Rate: 100, Per: weir.Every(1e9)})
	if err != nil {
		b.Fatal(err)
	}
	h := New(Config{Limiter: limiter, Policies: []*weir.Policy{p}, Log: slog.New(slog.DiscardHandler)})
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
