package adminapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/golden"
	"github.com/weirlimit/weir/server/internal/strictjson"
)

// Every way in which a body can be wrong. Nothing is changed by any of them.
func TestBodies(t *testing.T) {
	const (
		reset = `{"policy":"slots","key":"alice"`
		head  = `{"policy":"api","key":"alice","limits":`
		ends  = `,"ttl_s":60}`
		put   = head + `[{"rate":7,"per":"1s"}]`
	)
	limit := func(text string) string { return head + "[" + text + "]" + ends }
	tests := []struct{ method, name, body string }{
		{"POST", "empty", ``},
		{"POST", "null", ` null`},
		{"POST", "array", `[]`},
		{"POST", "string", `"x"`},
		{"POST", "byte order mark", "\ufeff" + reset + `}`},
		{"POST", "no fields", `{}`},
		{"POST", "no policy", `{"key":"alice"}`},
		{"POST", "unknown field", reset + `,"cost":1}`},
		{"POST", "other letter case", `{"Policy":"slots","key":"alice"}`},
		{"POST", "folded letter", reset + `,"\u212aey":"bob"}`},
		{"POST", "twice", reset + `,"key":"bob"}`},
		{"POST", "escaped name twice", reset + `,"k\u0065y":"bob"}`},
		{"POST", "trailing text", reset + `} x`},
		{"POST", "second object", reset + `}{}`},
		{"POST", "trailing comma", reset + `,}`},
		{"POST", "no comma", reset + ` "keys":{}}`},
		{"POST", "no colon", `{"policy" "slots"}`},
		{"POST", "open object", reset},
		{"POST", "open string", `{"policy":"sl`},
		{"POST", "policy is a number", `{"policy":1}`},
		{"POST", "key is null", `{"policy":"slots","key":null}`},
		{"POST", "key is an object", `{"policy":"slots","key":{"key":"alice"}}`},
		{"POST", "key is not UTF-8", "{\"policy\":\"slots\",\"key\":\"a\xff\"}"},
		{"POST", "key has a raw newline", "{\"policy\":\"slots\",\"key\":\"a\n\"}"},
		{"POST", "half a pair", `{"policy":"slots","key":"\\\ud83dx"}`},
		{"POST", "low half first", `{"policy":"slots","key":"\ude00\ud83d"}`},
		{"POST", "bad escape", `{"policy":"slots","key":"\x41"}`},
		{"POST", "key of 257 bytes", `{"policy":"slots","key":"` + strings.Repeat("k", 257) + `"}`},
		{"POST", "keys is an array", reset + `,"keys":["ip"]}`},
		{"POST", "keys has a number", reset + `,"keys":{"ip":1}}`},
		{"POST", "keys has one twice", reset + `,"keys":{"ip":"a","i\u0070":"b"}}`},
		{"POST", "keys has 17", reset + `,"keys":{"` + strings.Join(strings.Split("abcdefghijklmnopq", ""), `":"","`) + `":""}}`},
		{"POST", "keys has a long one", reset + `,"keys":{"ip":"` + strings.Repeat("k", 257) + `"}}`},
		{"POST", "16 KiB and 1", reset + `}` + strings.Repeat(" ", maxBody-len(reset))},
		{"PUT", "no key", `{"policy":"api","limits":[],"ttl_s":1}`},
		{"PUT", "no limits", `{"policy":"api","key":"a","ttl_s":1}`},
		{"PUT", "no end", put + `}`},
		{"PUT", "two ends", put + `,"ttl_s":60,"until":"never"}`},
		{"PUT", "ttl is 0", put + `,"ttl_s":0}`},
		{"PUT", "ttl is negative", put + `,"ttl_s":-1}`},
		{"PUT", "ttl has a fraction", put + `,"ttl_s":1.0}`},
		{"PUT", "ttl has an exponent", put + `,"ttl_s":1e3}`},
		{"PUT", "ttl is text", put + `,"ttl_s":"60"}`},
		{"PUT", "ttl of 10 years and 1 s", put + `,"ttl_s":315360001}`},
		{"PUT", "until is over", put + `,"until":"2026-05-17T12:00:00Z"}`},
		{"PUT", "until is too late", put + `,"until":"2036-05-15T12:00:00Z"}`},
		{"PUT", "until is no time", put + `,"until":"tomorrow"}`},
		{"PUT", "until is no time at all", put + `,"until":"0001-01-01T00:00:00Z"}`},
		{"PUT", "until without a zone", put + `,"until":"2026-05-18T12:00:00"}`},
		{"PUT", "until is null", put + `,"until":null}`},
		{"PUT", "limits is empty", head + `[]` + ends},
		{"PUT", "limits is an object", head + `{}` + ends},
		{"PUT", "limit is a number", limit(`7`)},
		{"PUT", "limit is empty", limit(`{}`)},
		{"PUT", "no rate", limit(`{"rate":7,"per":"1s"},{"name":"daily","per":"day"}`)},
		{"PUT", "rate is 0", limit(`{"rate":0,"per":"1s"}`)},
		{"PUT", "rate is negative", limit(`{"rate":-7,"per":"1s"}`)},
		{"PUT", "rate is a fraction", limit(`{"rate":0.5,"per":"1s"}`)},
		{"PUT", "rate is 2^53", limit(`{"rate":9007199254740992,"per":"1s"}`)},
		{"PUT", "rate is 2^63", limit(`{"rate":9223372036854775808,"per":"1s"}`)},
		{"PUT", "no period", limit(`{"rate":7}`)},
		{"PUT", "no such period", limit(`{"rate":7,"per":"fortnight"}`)},
		{"PUT", "no such zone", limit(`{"rate":7,"per":"day in ../../etc/passwd"}`)},
		{"PUT", "long period", limit(`{"rate":7,"per":"` + strings.Repeat("1s", 40) + `"}`)},
		{"PUT", "negative period", limit(`{"rate":7,"per":"-1s"}`)},
		{"PUT", "period is a number", limit(`{"rate":7,"per":1}`)},
		{"PUT", "no such algorithm", limit(`{"rate":7,"per":"1s","algorithm":"leaky"}`)},
		{"PUT", "burst of a window", limit(`{"name":"daily","rate":7,"per":"day","burst":9}`)},
		{"PUT", "initial beyond full", limit(`{"rate":7,"per":"1s","initial":"101%"}`)},
		{"PUT", "initial is a share", limit(`{"rate":7,"per":"1s","initial":"0.5"}`)},
		{"PUT", "no such on_error", limit(`{"rate":7,"per":"1s","on_error":"panic"}`)},
		{"PUT", "mode", limit(`{"rate":7,"per":"1s","mode":"shadow"}`)},
		{"PUT", "no such limit", limit(`{"name":"hourly","rate":7,"per":"1s"}`)},
		{"PUT", "limit twice", limit(`{"rate":7,"per":"1s"},{"name":"main","rate":8,"per":"1s"}`)},
		{"PUT", "two problems", limit(`{"rate":0,"per":"1s"},{"name":"daily","rate":1,"per":"day","algorithm":"gcra"}`)},
		{"PUT", "empty key", `{"policy":"api","key":"","limits":[{"rate":7,"per":"1s"}],"ttl_s":1}`},
		{"PUT", "star inside", `{"policy":"api","key":"a*b*","limits":[{"rate":7,"per":"1s"}],"ttl_s":1}`},
		{"PUT", "period of slots", `{"policy":"slots","key":"a","limits":[{"rate":7,"per":"1s"}],"ttl_s":1}`},
	}
	paths := map[string]string{"POST": "/admin/v1/keys/reset", "PUT": "/admin/v1/keys/override"}
	frozen(t, func(t *testing.T) {
		var got bytes.Buffer
		d := newDaemon(t)
		for _, tt := range tests {
			w := d.send(tt.method + " " + paths[tt.method] + " " + tt.body)
			fmt.Fprintf(&got, "%s, %s: %d %s", tt.method, tt.name, w.Code, detail(t, w.Body.Bytes()))
		}
		golden.Check(t, "testdata/bodies.golden", got.Bytes())
		if len(d.set) > 0 {
			t.Errorf("overrides = %v", d.set)
		}
	})
}

// detail returns the detail of a problem, and a newline.
func detail(t *testing.T, body []byte) string {
	t.Helper()
	var p struct{ Detail string }
	if err := json.Unmarshal(body, &p); err != nil || p.Detail == "" {
		t.Errorf("%s is no problem: %v", body, err)
	}
	return p.Detail + "\n"
}

func TestLongestBody(t *testing.T) {
	const body = `{"policy":"slots","key":"alice"}`
	d := newDaemon(t)
	if w := d.send("POST /admin/v1/keys/reset " + body + strings.Repeat(" ", maxBody-len(body))); w.Code != 200 {
		t.Errorf("a body of %d bytes: %d %s", maxBody, w.Code, w.Body)
	}
	if w := d.send("POST /admin/v1/keys/reset "+body, "Content-Encoding", "gzip"); w.Code != 415 {
		t.Errorf("a compressed body: %d %s", w.Code, w.Body)
	}
}

// obvious is an override as encoding/json reads it.
type obvious struct {
	Policy *string
	Key    *string
	Keys   map[string]string
	Limits []struct {
		Name, Per, Algorithm, Initial string
		OnError                       string `json:"on_error"`
		Rate, Burst                   int64
		MaxDebt                       int64 `json:"max_debt"`
	}
	TTL   int64 `json:"ttl_s"`
	Until string
}

// FuzzOverride holds the decoder to what encoding/json reads: whatever it accepts, that
// accepts, too, and both read the same. Whether it should have accepted it is for
// TestBodies to say.
func FuzzOverride(f *testing.F) {
	for _, seed := range []string{
		`{"policy":"api","key":"alice","limits":[{"rate":200,"per":"1s","burst":40},{"name":"daily","rate":5000,"per":"day"}],"ttl_s":3600}`,
		`{"policy":"api","key":"p-*","limits":[{"rate":9,"per":"1s","algorithm":"token_bucket","initial":"25%","max_debt":9,"on_error":"closed"}],"until":"2026-06-01T02:00:00+02:00"}`,
		` { "until" : "never" , "limits":[ ] , "key":"\ud83d\ude00\\", "policy":"" } `,
		`{"policy":"api","key":"\ud83d","limits":[],"ttl_s":1}`, `{"policy":"api","policy":"b"}`, `{"limits":[{"rate":1e3}]}`,
		`{"limits":[[[[[[`, `{"policy":{"a":[1,2]}}`, "{\"key\":\"\xff\"}", `[]`, ``, `{"`, `{} {}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		var req request
		err := req.read(&overrideForm, body)
		if !bytes.Equal(before, body) {
			t.Fatal("the body was changed")
		}
		if _, ok := errors.AsType[*strictjson.Error](err); err != nil && !ok {
			t.Fatalf("the error is a %T", err)
		}
		if err == nil {
			compare(t, body, &req)
		}
	})
}

// compare fails unless encoding/json reads from body what req has.
func compare(t *testing.T, body []byte, req *request) {
	t.Helper()
	var want obvious
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&want); err != nil {
		t.Fatalf("%q: accepted, but encoding/json says %v", body, err)
	}
	if want.Policy == nil || want.Key == nil || *want.Policy != req.policy || *want.Key != req.key || len(req.key) > weir.MaxKeyBytes || len(want.Limits) != len(req.limits) {
		t.Fatalf("%q: %+v", body, req)
	}
	if (want.TTL == 0) == (want.Until == "") || req.ttl != time.Duration(want.TTL)*time.Second {
		t.Fatalf("%q: ends after %v or at %v", body, req.ttl, req.until)
	}
	for i, l := range want.Limits {
		var o weir.Limit
		o.Name, o.Rate, o.Burst, o.MaxDebt = l.Name, l.Rate, l.Burst, l.MaxDebt
		for text, into := range map[string]interface{ UnmarshalText([]byte) error }{l.Per: &o.Per, l.Algorithm: &o.Algorithm, l.Initial: &o.Initial, l.OnError: &o.OnError} {
			if text != "" {
				_ = into.UnmarshalText([]byte(text)) // fails as it did for req, or the comparison tells
			}
		}
		got := req.limits[i].Limit
		if o.Initial.String() != got.Initial.String() {
			t.Fatalf("%q: limit %d begins with %v, want %v", body, i, got.Initial, o.Initial)
		}
		o.Initial, got.Initial = (weir.Fill{}), (weir.Fill{}) // NaN is not equal to itself
		if got != o {
			t.Fatalf("%q: limit %d is %#v, want %#v", body, i, got, o)
		}
	}
}

// What a PUT and the list of overrides return can be sent again.
func TestAnswersCanBeSentAgain(t *testing.T) {
	frozen(t, func(t *testing.T) {
		d := newDaemon(t)
		const first = `{"policy":"api","key":"p-*","limits":[{"name":"main","rate":9,"per":"1s","algorithm":"token_bucket","initial":"25%","max_debt":9,"on_error":"closed"}],"until":"2026-06-01T00:00:00Z"}`
		for range 2 {
			w := d.send("PUT /admin/v1/keys/override " + first)
			if got := strings.TrimSpace(w.Body.String()); got != first {
				t.Errorf("%d %s", w.Code, got)
			}
		}
	})
}
