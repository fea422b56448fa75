package jsonrpc

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
)

func TestFirstParams(t *testing.T) {
	for body, want := range map[string][]Value{
		` {"method":"m","params":[ "a\u0062" , 1]}`: {{`"a\u0062"`, "ab", true, 26}},
		`{"method":"m","p\u0061rams":[7]}`:          {{"7", "", false, 29}},
		`{"method":"m","params":[[1],2]}`:           {{"[1]", "", false, 24}},
		`{"method":"m","params":[]}`:                {{}},
		`{"method":"m","params":{"a":1}}`:           {{}},
		`{"method":"m","params":"a"}`:               {{}},
		`{"method":"m"}`:                            {{}},
		`[{"method":"m"},{"params":["x"],"method":"m"},{"method":"m","params":[null,1]}]`: {{}, {`"x"`, "x", true, 27}, {"null", "", false, 70}},
	} {
		if got := FirstParams([]byte(body)); !slices.Equal(got, want) {
			t.Errorf("%s: got %+v, want %+v", body, got, want)
		}
	}
}

func TestResponses(t *testing.T) {
	got, err := Responses([]byte(`[{"id":"a","result":"0x1"}, {"error":{},"id":null}]`))
	want := []Response{{Value{`"a"`, "a", true, 7}, Value{`"0x1"`, "0x1", true, 20}}, {ID: Value{"null", "", false, 45}}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v, %v", got, want, err)
	}
	for _, body := range []string{``, `{`, `{"result":1,"result":2}`, `[{},{"ID":1}]`} {
		if got, err := Responses([]byte(body)); !errors.As(err, new(*Error)) || got != nil {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
}

func TestAppend(t *testing.T) {
	for body, want := range map[string]string{
		``: `[a,b]`, ` [ ] `: `[ a,b]`, `[]`: `[a,b]`, `[1]`: `[1,a,b]`, " [1, [2]\n]\n": "[1, [2]\n,a,b]", `{"id":1}`: "", `[`: "", `]`: "", `{]`: "",
	} {
		if got, ok := Append([]byte(body), []string{"a", "b"}); ok != (want != "") || ok && string(got) != want || !ok && string(got) != body {
			t.Errorf("%q: %q, %v, want %q", body, got, ok, want)
		}
	}
}

// FuzzEdit: what is found is where it is said to be, and replacing it by itself changes nothing.
func FuzzEdit(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Add([]byte(`[{"method":"m","params":[ "x" ]},{"method":"n","params":[{}]}]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		request, err := Parse(body)
		if err != nil {
			return
		}
		values := FirstParams(body)
		if len(values) != len(request.Calls) {
			t.Fatalf("%q: %d calls, and parameters of %d", body, len(request.Calls), len(values))
		}
		values = slices.DeleteFunc(values, func(v Value) bool { return v.Raw == "" })
		if request.Batch {
			same(t, body, Members(body))
		}
		same(t, body, values)
	})
}

func same(t *testing.T, body []byte, values []Value) {
	t.Helper()
	var edits, other []Edit
	for _, v := range values {
		if !json.Valid([]byte(v.Raw)) {
			t.Errorf("%q: %q is no value", body, v.Raw)
		}
		edits, other = append(edits, Edit{v, v.Raw}), append(other, Edit{v, "{}"})
	}
	if got := Apply(body, edits); string(got) != string(body) {
		t.Errorf("%q became %q", body, got)
	}
	if got := Apply(body, other); !json.Valid(got) {
		t.Errorf("%q became %q", body, got)
	}
}
