package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirlimit/weir"
)

func TestDecodeCheck(t *testing.T) {
	tests := []struct {
		name, body, policy, key string
		cost                    int64
		peek                    bool
	}{
		{"least", `{"policy":"p","key":"k"}`, "p", "k", 1, false},
		{"all", `{"policy":"p","key":"k","cost":7,"peek":true}`, "p", "k", 7, true},
		{"any order and space", " {\n\"peek\" :false,\t\"cost\":0 , \"key\":\"k\",\r\"policy\":\"p\" } ", "p", "k", 0, false},
		{"greatest cost", `{"policy":"p","key":"k","cost":2147483647}`, "p", "k", weir.MaxCost, false},
		{"escapes", `{"policy":"\u0070","key":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00é😀\u0000"}`, "p", "\"\\/\b\f\n\r\té😀é😀\x00", 1, false},
		{"escaped name", `{"p\u006flicy":"p","\u006bey":"k"}`, "p", "k", 1, false},
		{"longest key", `{"policy":"p","key":"` + strings.Repeat("k", 256) + `"}`, "p", strings.Repeat("k", 256), 1, false},
		{"replacement character", "{\"policy\":\"p\",\"key\":\"\ufffd\"}", "p", "\ufffd", 1, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := decodeCheck([]byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if string(got.policy) != tt.policy || got.key != tt.key || got.cost != tt.cost || got.peek != tt.peek {
				t.Errorf("decodeCheck = %q %q %d %v", got.policy, got.key, got.cost, got.peek)
			}
		})
	}
}

// FuzzDecodeCheck compares with a slow decoder on top of encoding/json: both
// accept the same bodies and read the same from them.
func FuzzDecodeCheck(f *testing.F) {
	for _, seed := range []string{
		`{"policy":"default","key":"alice"}`,
		`{"policy":"default","key":"alice","cost":5,"peek":true}`,
		`{"policy":"default","key":"alice","key":"bob"}`,
		`{"policy":"default","k\u0065y":"alice","key":"bob"}`,
		`{"Policy":"default","KEY":"alice"}`,
		`{"policy":"default","\u212aey":"alice"}`,
		`{"policy":"p","key":"\ud83d\ude00\ud83d"}`,
		`{"policy":"p","key":null,"cost":1e2}`,
		`{"policy":"p","key":"k","cost":-0,"peek":false} {}`,
		`{"policy":"p","key":"k","cost":99999999999999999999}`,
		"{\"policy\":\"p\",\"key\":\"\xff\"}",
		`[{"policy":"p"}]`, ``, `{`, `{"`, `{"a":{"b":[1,2]}}`, `{"policy":"p","key":"\`, `{"policy":"p","key":"\u`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		got, err := decodeCheck(body)
		if !bytes.Equal(before, body) {
			t.Fatal("the body was changed")
		}
		want, ok := slowDecode(body)
		if _, in := errors.AsType[*inputError](err); err != nil && !in {
			t.Fatalf("error is a %T", err)
		}
		if (err == nil) != ok {
			t.Fatalf("decodeCheck(%q): error %v, encoding/json accepts: %v", body, err, ok)
		}
		if ok && (string(got.policy) != string(want.policy) || got.key != want.key || got.cost != want.cost || got.peek != want.peek) {
			t.Fatalf("decodeCheck(%q) = %+v, encoding/json says %+v", body, got, want)
		}
	})
}

// slowDecode is the obvious decoder: tokens of encoding/json, each field once
// and by its exact name, nothing else.
func slowDecode(body []byte) (req checkRequest, ok bool) {
	if !utf8.Valid(body) || !json.Valid(body) || bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		return req, false
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return req, false
	}
	values := map[string]any{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return req, false
		}
		value, err := dec.Token()
		if _, nested := value.(json.Delim); err != nil || nested {
			return req, false
		}
		if _, twice := values[name.(string)]; twice {
			return req, false
		}
		values[name.(string)] = value
	}
	if _, err := dec.Token(); err != nil {
		return req, false
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return req, false
	}
	return slowCheck(values, body)
}

func slowCheck(values map[string]any, body []byte) (req checkRequest, ok bool) {
	policy, hasPolicy := values["policy"].(string)
	key, hasKey := values["key"].(string)
	if !hasPolicy || !hasKey || len(key) > weir.MaxKeyBytes || halfPair(policy+key, body) {
		return req, false
	}
	req = checkRequest{policy: []byte(policy), key: key, cost: 1}
	for name, value := range values {
		switch name {
		case "policy", "key":
		case "cost":
			n, isNumber := value.(json.Number)
			cost, err := n.Int64()
			if !isNumber || err != nil || strings.HasPrefix(n.String(), "-") || cost > weir.MaxCost {
				return req, false
			}
			req.cost = cost
		case "peek":
			if req.peek, ok = value.(bool); !ok {
				return req, false
			}
		default:
			return req, false
		}
	}
	return req, true
}

// halfPair says whether encoding/json put a replacement character where the body
// has none, which it does for half of a surrogate pair.
func halfPair(decoded string, body []byte) bool {
	raw := bytes.ToLower(bytes.ReplaceAll(body, []byte(`\\`), nil))
	written := bytes.Count(raw, []byte("\ufffd")) + bytes.Count(raw, []byte(`\ufffd`))
	return strings.Count(decoded, "\ufffd") > written
}
