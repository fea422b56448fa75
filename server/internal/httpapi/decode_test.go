package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/strictjson"
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
			var got request
			if err := got.decode(&checkForm, []byte(tt.body)); err != nil {
				t.Fatal(err)
			}
			if string(got.policy) != tt.policy || got.query.Key != tt.key || got.query.Cost != tt.cost || got.peek != tt.peek {
				t.Errorf("decoded %q %q %d %v", got.policy, got.query.Key, got.query.Cost, got.peek)
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
		`{"policy":"p","keys":{"ip":"1","ip":"2"},"max_wait_ms":10000}`,
		`{"policy":"p","cost":{"tokens":5,"requests":0},"keys":{"a":"\ud83d"}}`,
		`{"policy":"p","method":"eth_call"}`, `{"policy":"p","methods":["a","\ud83d"]}`, `{"policy":"p","methods":["a"],"method":"b"}`,
		`{"policy":"p","methods":[]}`, `{"policy":"p","methods":"a"}`, `{"policy":"p","method":["a"]}`, `{"policy":"p","methods":[1]}`, `{"policy":"p","keys":{"a":["b"]}}`,
		`{"policy":"p","cost":{},"keys":{}}`, `{"policy":"p","cost":{"a":{}}}`,
		`[{"policy":"p"}]`, ``, `{`, `{"`, `{"a":{"b":[1,2]}}`, `{"policy":"p","key":"\`, `{"policy":"p","key":"\u`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		var got request
		err := got.decode(&checkForm, body)
		if !bytes.Equal(before, body) {
			t.Fatal("the body was changed")
		}
		want, ok := slowDecode(body)
		if _, in := errors.AsType[*strictjson.Error](err); err != nil && !in {
			t.Fatalf("error is a %T", err)
		}
		if (err == nil) != ok {
			t.Fatalf("%q: error %v, encoding/json accepts: %v", body, err, ok)
		}
		if diff := cmp.Diff(want, checkOf(&got)); ok && diff != "" {
			t.Fatalf("%q (-encoding/json +decoded):\n%s", body, diff)
		}
	})
}

// slow is what the obvious decoder reads of a check.
type slow struct {
	Policy, Key string
	Plain, Peek bool // a number was given
	Shadow      bool
	Keys        map[string]string
	Cost, Wait  int64
	Costs       map[string]int64
	Methods     []string
}

// checkOf returns what was decoded in the slow one's terms.
func checkOf(r *request) slow {
	s := slow{Policy: string(r.policy), Key: r.query.Key, Plain: !r.query.Implied, Peek: r.peek, Shadow: r.query.Shadow, Cost: r.query.Cost, Wait: r.query.MaxWait.Milliseconds(), Methods: r.query.Methods}
	for _, k := range r.query.Keys {
		if s.Keys == nil {
			s.Keys = map[string]string{}
		}
		s.Keys[k.Name] = k.Value
	}
	for _, c := range r.query.Costs {
		if s.Costs == nil {
			s.Costs = map[string]int64{}
		}
		s.Costs[c.Unit] = c.Amount
	}
	return s
}

// slowDecode is the obvious decoder: tokens of encoding/json, each field once
// and by its exact name, nothing else.
func slowDecode(body []byte) (slow, bool) {
	if !utf8.Valid(body) || !json.Valid(body) {
		return slow{}, false
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	values, ok := slowObject(dec, true)
	if _, err := dec.Token(); !ok || !errors.Is(err, io.EOF) {
		return slow{}, false
	}
	return slowCheck(values, body)
}

// slowObject reads an object in which objects may be, one level deep.
func slowObject(dec *json.Decoder, nest bool) (map[string]any, bool) {
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, false
	}
	return slowFields(dec, nest)
}

func slowFields(dec *json.Decoder, nest bool) (map[string]any, bool) {
	values := map[string]any{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, false
		}
		value, err := dec.Token()
		if err != nil {
			return nil, false
		}
		switch value {
		case json.Delim('{'):
			inner, ok := map[string]any{}, false
			if nest {
				inner, ok = slowFields(dec, false)
			}
			if !ok {
				return nil, false
			}
			value = inner
		case json.Delim('['):
			inner, ok := slowTexts(dec)
			if !ok || !nest {
				return nil, false
			}
			value = inner
		}
		if _, twice := values[name.(string)]; twice {
			return nil, false
		}
		values[name.(string)] = value
	}
	_, err := dec.Token()
	return values, err == nil
}

func slowCheck(values map[string]any, body []byte) (s slow, ok bool) {
	s = slow{Cost: 1}
	all := ""
	for name, value := range values {
		switch name {
		case "policy":
			s.Policy, ok = value.(string)
			all += s.Policy
		case "key":
			s.Key, ok = value.(string)
			ok = ok && len(s.Key) <= weir.MaxKeyBytes
			all += s.Key
		case "keys":
			s.Keys, ok = slowKeys(value, &all)
		case "cost":
			s.Cost, s.Costs, ok = slowCost(value, &all)
			_, units := value.(map[string]any)
			s.Plain = !units
		case "method", "methods":
			s.Methods, ok = slowMethods(name, value, s.Methods, &all)
		case "peek":
			s.Peek, ok = value.(bool)
		case "shadow":
			s.Shadow, ok = value.(bool)
		case "max_wait_ms":
			s.Wait, ok = slowInt(value, 10_000)
		default:
			ok = false
		}
		if !ok {
			return s, false
		}
	}
	_, hasPolicy := values["policy"]
	return s, hasPolicy && !halfPair(all, body)
}

// slowTexts reads the rest of a list of strings.
func slowTexts(dec *json.Decoder) (list []string, ok bool) {
	for dec.More() {
		value, err := dec.Token()
		text, isText := value.(string)
		if err != nil || !isText {
			return nil, false
		}
		list = append(list, text)
	}
	_, err := dec.Token()
	return list, err == nil
}

func slowMethods(name string, value any, before []string, all *string) ([]string, bool) {
	list, ok := value.([]string)
	if text, isText := value.(string); isText && name == "method" {
		list, ok = []string{text}, true
	} else if name == "method" {
		return nil, false
	}
	for _, method := range list {
		ok = ok && len(method) <= 256
		*all += method
	}
	return list, ok && before == nil && len(list) > 0 && len(list) <= 1000
}

func slowInt(value any, most int64) (int64, bool) {
	n, isNumber := value.(json.Number)
	i, err := n.Int64()
	return i, isNumber && err == nil && !strings.HasPrefix(n.String(), "-") && i <= most
}

func slowKeys(value any, all *string) (map[string]string, bool) {
	object, ok := value.(map[string]any)
	if !ok || len(object) > 16 {
		return nil, false
	}
	var keys map[string]string
	for name, v := range object {
		text, ok := v.(string)
		if !ok || len(text) > weir.MaxKeyBytes {
			return nil, false
		}
		if keys == nil {
			keys = map[string]string{}
		}
		keys[name] = text
		*all += name + text
	}
	return keys, true
}

func slowCost(value any, all *string) (int64, map[string]int64, bool) {
	object, ok := value.(map[string]any)
	if !ok {
		n, ok := slowInt(value, weir.MaxCost)
		return n, nil, ok
	}
	costs := map[string]int64(nil)
	for unit, v := range object {
		n, ok := slowInt(v, weir.MaxCost)
		if !ok || len(object) > 16 {
			return 0, nil, false
		}
		*all += unit
		if costs == nil {
			costs = map[string]int64{}
		}
		costs[unit] = n
	}
	return 1, costs, true
}

// halfPair says whether encoding/json put a replacement character where the body
// has none, which it does for half of a surrogate pair.
func halfPair(decoded string, body []byte) bool {
	raw := bytes.ToLower(bytes.ReplaceAll(body, []byte(`\\`), nil))
	written := bytes.Count(raw, []byte("\ufffd")) + bytes.Count(raw, []byte(`\ufffd`))
	return strings.Count(decoded, "\ufffd") > written
}
