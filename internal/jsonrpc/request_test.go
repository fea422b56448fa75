package jsonrpc

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name, body string
		want       []Call
		batch      bool
	}{
		{"a call", `{"jsonrpc":"2.0","method":"eth_call","params":[],"id":1}`, []Call{{Method: "eth_call", ID: "1"}}, false},
		{"an id that is a string", ` {"id":"a\"b","method":"m"} `, []Call{{Method: "m", ID: `"a\"b"`}}, false},
		{"an id that is null", `{"id":null,"method":"m"}`, []Call{{Method: "m", ID: "null"}}, false},
		{"an id as it is written", `{"id":1.50,"method":"m"}`, []Call{{Method: "m", ID: "1.50"}}, false},
		{"a notification", `{"method":"m"}`, []Call{{Method: "m", IsNotification: true}}, false},
		{"an escaped method", `{"method":"eth_\u0063all","id":1}`, []Call{{Method: "eth_call", ID: "1"}}, false},
		{"an escaped name", `{"m\u0065thod":"m","id":1}`, []Call{{Method: "m", ID: "1"}}, false},
		{"unknown members", `{"method":"m","id":1,"x":{"method":"y"},"x":2}`, []Call{{Method: "m", ID: "1"}}, false},
		{"names inside params", `{"method":"m","id":1,"params":{"method":"y","METHOD":"z"}}`, []Call{{Method: "m", ID: "1"}}, false},
		{"a batch of one", `[{"method":"m","id":1}]`, []Call{{Method: "m", ID: "1"}}, true},
		{
			"a batch", `[{"method":"a","id":1}, {"method":"b"},{"method":"a","id":"1"}]`,
			[]Call{{Method: "a", ID: "1"}, {Method: "b", IsNotification: true}, {Method: "a", ID: `"1"`}},
			true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse([]byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Calls, tt.want) || got.Batch != tt.batch {
				t.Errorf("got %+v, want %+v, batch %v", got, tt.want, tt.batch)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	long := func(n int) string { return strings.Repeat("m", n) }
	tests := []struct {
		name, body string
		want       Error
	}{
		{"nothing", ``, Error{CodeParse, -1, 0, "the body is not JSON: unexpected end of JSON input"}},
		{"no JSON", `{"method":x}`, Error{CodeParse, -1, 10, "the body is not JSON: invalid character 'x' looking for beginning of value"}},
		{"cut off", `{"method":"m"`, Error{CodeParse, -1, 12, "the body is not JSON: unexpected end of JSON input"}},
		{"two values", `{"method":"m"}{}`, Error{CodeParse, -1, 14, "the body is not JSON: invalid character '{' after top-level value"}},
		{"not UTF-8", "{\"method\":\"\xff\"}", Error{CodeParse, -1, -1, "the body is not UTF-8"}},
		{"a string", ` "m"`, Error{CodeInvalidRequest, -1, 1, "a request is an object, or an array of objects, not a string"}},
		{"no method", `{"id":1}`, Error{CodeInvalidRequest, -1, 0, `no "method"`}},
		{"an empty method", `{"method":""}`, Error{CodeInvalidRequest, -1, 10, `"method" is empty`}},
		{"a number as method", `{"method":1}`, Error{CodeInvalidRequest, -1, 10, `"method" is a string, not a number`}},
		{"null as method", `{"method":null}`, Error{CodeInvalidRequest, -1, 10, `"method" is a string, not null`}},
		{"a long method", `{"method":"` + long(257) + `"}`, Error{CodeInvalidRequest, -1, 10, `"method" has 257 bytes, at most 256 are allowed`}},
		{"a duplicate method", `{"method":"a","method":"a"}`, Error{CodeInvalidRequest, -1, 14, `a duplicate "method"`}},
		{"a duplicate method, escaped", `{"method":"a","\u006dethod":"b"}`, Error{CodeInvalidRequest, -1, 14, `a duplicate "method"`}},
		{"a duplicate id", `{"id":1,"method":"a","id":2}`, Error{CodeInvalidRequest, -1, 21, `a duplicate "id"`}},
		{"a duplicate params", `{"params":1,"method":"a","params":2}`, Error{CodeInvalidRequest, -1, 25, `a duplicate "params"`}},
		{"a duplicate jsonrpc", `{"jsonrpc":1,"method":"a","jsonrpc":2}`, Error{CodeInvalidRequest, -1, 26, `a duplicate "jsonrpc"`}},
		{"another case", `{"method":"a","Method":"b"}`, Error{CodeInvalidRequest, -1, 14, `"Method" is written "method"`}},
		{"another case only", `{"ID":1,"method":"a"}`, Error{CodeInvalidRequest, -1, 1, `"ID" is written "id"`}},
		{"a letter that folds", `{"method":"a","paramſ":1}`, Error{CodeInvalidRequest, -1, 14, `"paramſ" is written "params"`}},
		{"a boolean as id", `{"method":"a","id":true}`, Error{CodeInvalidRequest, -1, 19, `"id" is a string, a number or null, not a boolean`}},
		{"an object as id", `{"method":"a","id":{}}`, Error{CodeInvalidRequest, -1, 19, `"id" is a string, a number or null, not an object`}},
		{"an empty batch", ` [ ]`, Error{CodeInvalidRequest, -1, 1, "an empty batch: leave out the request, or put a call in it"}},
		{"a batch in a batch", `[{"method":"a"},[{"method":"b"}]]`, Error{CodeInvalidRequest, 1, 16, "a batch inside a batch"}},
		{"a number in a batch", `[1]`, Error{CodeInvalidRequest, 0, 1, "a call is an object, not a number"}},
		{"a bad call in a batch", `[{"method":"a"},{"method":"b"},{"id":1}]`, Error{CodeInvalidRequest, 2, 31, `no "method"`}},
		{
			"a long batch", "[" + strings.Repeat(`{"method":"a"},`, 100) + `{"method":"a"}]`,
			Error{CodeInvalidRequest, 100, 1501, "a batch may have 100 members: send the rest as another batch"},
		},
		{
			"deep", `{"method":"a","params":` + strings.Repeat("[", 100),
			Error{CodeInvalidRequest, -1, 122, "more than 100 objects and arrays inside each other"},
		},
		{"large", strings.Repeat(" ", MaxRequest+1), Error{CodeInvalidRequest, -1, -1, "the body has 5242881 bytes, at most 5242880 are allowed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse([]byte(tt.body))
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("got %+v, %v", got, err)
			}
			if *e != tt.want {
				t.Errorf("got %+v\nwant %+v", *e, tt.want)
			}
			if got.Calls != nil {
				t.Errorf("calls %v of a refused request", got.Calls)
			}
		})
	}
}

func TestParseBounds(t *testing.T) {
	bodies := map[string]string{
		"batch":  "[" + strings.Repeat(`{"method":"a"},`, 99) + `{"method":"a"}]`,
		"depth":  `{"method":"a","params":` + strings.Repeat("[", 99) + strings.Repeat("]", 99) + `}`,
		"string": `{"method":"a","params":["\"` + strings.Repeat("[", 200) + `\\"]}`,
		"method": `{"method":"` + strings.Repeat("m", MaxMethod) + `"}`,
		"size":   `{"method":"a","params":["` + strings.Repeat("x", MaxRequest-28) + `"]}`,
	}
	for name, body := range bodies {
		if _, err := Parse([]byte(body)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestErrorText(t *testing.T) {
	tests := []struct {
		err  Error
		want string
	}{
		{Error{CodeParse, -1, -1, "p"}, "jsonrpc: p"},
		{Error{CodeParse, -1, 7, "p"}, "jsonrpc: at byte 7: p"},
		{Error{CodeParse, 2, 7, "p"}, "jsonrpc: call 2 of the batch, at byte 7: p"},
	}
	for _, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestErrors(t *testing.T) {
	tests := []struct {
		name, body string
		want       []ErrorObject
	}{
		{"a result", `{"jsonrpc":"2.0","id":1,"result":{"error":{"code":1}}}`, nil},
		{"null", `{"id":1,"result":1,"error":null}`, nil},
		{
			"an error", `{"id":"x","error":{"code":429,"message":"too many","data":{"backoff_seconds":30}}}`,
			[]ErrorObject{{429, "too many", `{"backoff_seconds":30}`, `"x"`, `{"code":429,"message":"too many","data":{"backoff_seconds":30}}`}},
		},
		{"no id", `{"error":{"code":-32005,"message":"m"}}`, []ErrorObject{{Code: -32005, Message: "m", Raw: `{"code":-32005,"message":"m"}`}}},
		{"a code in quotes", `{"error":{"code":"429"}}`, []ErrorObject{{Raw: `{"code":"429"}`}}},
		{"a code with a fraction", `{"error":{"code":4.5,"message":"\u0061"}}`, []ErrorObject{{Message: "a", Raw: `{"code":4.5,"message":"\u0061"}`}}},
		{"a code out of range", `{"error":{"code":99999999999999999999}}`, []ErrorObject{{Raw: `{"code":99999999999999999999}`}}},
		{"a text", `{"id":1,"error":"no"}`, []ErrorObject{{Message: "no", ID: "1", Raw: `"no"`}}},
		{"false", `{"id":1,"error":false}`, []ErrorObject{{Message: "false", ID: "1", Raw: "false"}}},
		{"an empty batch", `[]`, nil},
		{
			"a batch", `[{"id":1,"result":1},{"id":2,"error":{"code":1}},{"id":3,"error":{"code":2}}]`,
			[]ErrorObject{{Code: 1, ID: "2", Raw: `{"code":1}`}, {Code: 2, ID: "3", Raw: `{"code":2}`}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Errors([]byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestErrorsRefuses(t *testing.T) {
	tests := []struct {
		name, body string
		want       Error
	}{
		{"no JSON", `<html>`, Error{CodeParse, -1, 0, "the body is not JSON: invalid character '<' looking for beginning of value"}},
		{"a number", `1`, Error{CodeInvalidRequest, -1, 0, "a response is an object, not a number"}},
		{"a number in a batch", `[{},1]`, Error{CodeInvalidRequest, 1, 4, "a response is an object, not a number"}},
		{"two errors", `{"error":null,"error":{"code":1}}`, Error{CodeInvalidRequest, -1, 14, `a duplicate "error"`}},
		{"two codes", `[{"error":{"code":1,"code":2}}]`, Error{CodeInvalidRequest, 0, 20, `a duplicate "code"`}},
		{"a long batch", `[` + strings.Repeat(`{},`, 100) + `{}]`, Error{CodeInvalidRequest, 100, 301, "a batch may have 100 members: send the rest as another batch"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Errors([]byte(tt.body))
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("got %+v, %v", got, err)
			}
			if *e != tt.want {
				t.Errorf("got %+v\nwant %+v", *e, tt.want)
			}
		})
	}
}
