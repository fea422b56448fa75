package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

var personForm = Form{What: "a person", Fields: []string{"name", "age", "tags", "counts", "active"}}

type person struct {
	Name   string           `json:"name"`
	Age    int64            `json:"age"`
	Tags   []string         `json:"tags"`
	Counts map[string]int64 `json:"counts"`
	Active bool             `json:"active"`
}

func readPerson(text []byte) (p person, seen Seen, err error) {
	r := New(text)
	seen, err = r.Object(&personForm, func(field string) (err error) {
		switch field {
		case "name":
			p.Name, err = r.Text(`"name"`, 8)
		case "age":
			p.Age, err = r.Integer(`"age"`, 150)
		case "active":
			p.Active, err = r.Boolean(`"active"`)
		case "tags":
			err = r.List(`"tags"`, func(int) error {
				tag, err := r.Text("a tag", 8)
				p.Tags = append(p.Tags, tag)
				return err
			})
		case "counts":
			p.Counts = map[string]int64{}
			err = r.Entries(`"counts"`, 2, func(name string) error {
				n, err := r.Integer("a count", 10)
				p.Counts[name] = n
				return err
			})
		}
		return err
	})
	if err == nil {
		err = r.End()
	}
	return p, seen, err
}

func TestObject(t *testing.T) {
	p, seen, err := readPerson([]byte(` { "tags":[ "a" ,"\u00e9"], "name" : "Ada","counts":{"x":1,"y":10} } `))
	if got := fmt.Sprint(p); err != nil || got != "{Ada 0 [a é] map[x:1 y:10] false}" {
		t.Errorf("read %s, %v", got, err)
	}
	if !seen.Has("name") || seen.Has("age") || !seen.Lacks("age") || seen.Lacks("name") || seen.Has("shoe") || seen.Lacks("shoe") {
		t.Errorf("seen = %+v", seen)
	}
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		``:                                      "at byte 0: a person is a JSON object, not nothing",
		`{}{}`:                                  "at byte 2: nothing may follow the object",
		`{"Name":"x"}`:                          `at byte 1: unknown field "Name" (did you mean "name"?); a person has name, age, tags, counts and active`,
		`{"name":"x","n\u0061me":"y"}`:          `at byte 12: field "name" stands there twice`,
		`{"name":"123456789"}`:                  `at byte 8: "name" has 9 bytes: at most 8 fit`,
		`{"name":"a` + "\xff" + `"}`:            `at byte 10: "name" is not UTF-8`,
		`{"name":"\ud83d"}`:                     `at byte 9: "name" has half of a surrogate pair`,
		`{"age":151}`:                           `at byte 7: "age" must be at most 150`,
		`{"age":01}`:                            `at byte 7: "age" must not begin with 0`,
		`{"age": 1e2}`:                          `at byte 8: "age" must be an integer, written in digits`,
		`{"active":null}`:                       `at byte 10: "active" must be true or false, not null`,
		`{"tags":{}}`:                           `at byte 8: "tags" is a list, not an object`,
		`{"tags":["a" "b"]}`:                    `at byte 13: expected , or ] after a value`,
		`{"tags":["a",]}`:                       `at byte 13: a tag must be a string, not something else`,
		`{"counts":{"a":1,"b":2,"c":3}}`:        `at byte 23: "counts" may have 2 entries`,
		`{"counts":{"a":1,"\u0061":2}}`:         `at byte 17: "counts" has "a" twice`,
		`{"counts":{"a":11}}`:                   `at byte 15: a count must be at most 10`,
		`{"` + strings.Repeat("é", 40):          `at byte 82: the text ends inside a name`,
		`{"` + strings.Repeat("é", 40) + `":1}`: `at byte 1: unknown field "` + strings.Repeat(`\u00e9`, 32) + `"…; a person has name, age, tags, counts and active`,
	} {
		if _, _, err := readPerson([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", text, err, want)
		}
	}
}

// A text without escapes is read without allocating.
func TestReadingDoesNotAllocate(t *testing.T) {
	text, sum := []byte(`{"name":"alice","age":37,"active":true,"tags":["a","b"]}`), 0
	read := func() {
		r := New(text)
		_, err := r.Object(&personForm, func(field string) (err error) {
			var name []byte
			switch field {
			case "name":
				name, err = r.Bytes(`"name"`)
				sum += len(name)
			case "age":
				_, err = r.Integer(`"age"`, 150)
			case "active":
				_, err = r.Boolean(`"active"`)
			case "tags":
				err = r.List(`"tags"`, func(int) error { _, err := r.Bytes("a tag"); return err })
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, read); n != 0 || sum == 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzRead holds the reader to encoding/json: what the reader accepts, that accepts, too, and both
// read the same.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"name":"\ud83d\ude00","age":0,"tags":[],"counts":{},"active":false}`, `{"tags":["\\","\/\b\f"]}`, `{"age":-0}`,
		`{"name":"\u`, `{"counts":{"a":1}}`, ` [`, `{"tags":[[`, "{\"name\":\"\xed\xa0\x80\"}", `{"age":1.5}`, `{`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		got, _, err := readPerson(text)
		if !bytes.Equal(before, text) {
			t.Fatal("the text was changed")
		}
		if err != nil {
			if bad, ok := errors.AsType[*Error](err); !ok || bad.Offset < 0 || bad.Offset > len(text) {
				t.Fatalf("%q: error %#v", text, err)
			}
			return
		}
		var want person
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&want); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%q: read %v, encoding/json reads %v, %v", text, got, want, err)
		}
	})
}

// Quote repeats little, in whole characters.
func TestQuote(t *testing.T) {
	long := strings.Repeat("ä", 1000)
	if got := Quote("a\nb"); got != `"a\nb"` {
		t.Error(got)
	}
	if got := Quote(long); len(got) > 6*maxQuoted || !strings.HasSuffix(got, `"…`) || strings.Contains(got, "\ufffd") {
		t.Error(got)
	}
}
