package secret

import (
	"bytes"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
)

const canary = "canary-4f1c"

// holder has a secret wherever printers may look for one.
type holder struct {
	Exported Secret
	hidden   Secret
	Pointer  *Secret
	List     []Secret
	Map      map[string]Secret
	Keys     map[Secret]int
	Any      any
}

func newHolder() holder {
	s := New(canary)
	return holder{
		Exported: s, hidden: s, Pointer: &s, List: []Secret{s},
		Map: map[string]Secret{"a": s}, Keys: map[Secret]int{s: 1}, Any: s,
	}
}

func TestNothingLeaks(t *testing.T) {
	s, h := New(canary), newHolder()
	values := []any{s, &s, h, &h, h.hidden, []any{s}, map[string]any{"a": s}, [1]Secret{s}, struct{ s Secret }{s}}
	tests := []struct {
		name  string
		print func(v any) string
	}{
		{"println", func(v any) string { return fmt.Sprintln(v) }},
		{"errorf", func(v any) string { return fmt.Errorf("no: %v, %w", v, errors.New("x")).Error() }},
		{"panic", panicText},
		{"log", logText},
		{"slog text", func(v any) string { return slogText(v, false) }},
		{"slog json", func(v any) string { return slogText(v, true) }},
		{"json", marshal(json.Marshal)},
		{"xml", marshal(xml.Marshal)},
		{"gob", gobText},
		{"template", templateText},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, v := range values {
				wantNoLeak(t, tt.print(v))
			}
		})
	}
	for verb := ' '; verb <= '~'; verb++ {
		for _, flags := range []string{"", "+", "#", "-20", "020", ".3", " ", "[1]"} {
			for _, v := range values {
				wantNoLeak(t, fmt.Sprintf("%"+flags+string(verb), v))
			}
		}
	}
}

func TestPrinted(t *testing.T) {
	s := New(canary)
	tests := []struct{ name, got, want string }{
		{"%v", fmt.Sprintf("%v", s), "***"},
		{"%s", fmt.Sprintf("%s", s), "***"},
		{"%q", fmt.Sprintf("%q", s), `"***"`},
		{"%x", fmt.Sprintf("%x", s), "***"},
		{"%d", fmt.Sprintf("%d", s), "***"},
		{"%#v", fmt.Sprintf("%#v", s), `secret.New("***")`},
		{"%+v in a struct", fmt.Sprintf("%+v", struct{ S Secret }{s}), "{S:***}"},
		{"String", s.String(), "***"},
		{"GoString", s.GoString(), `secret.New("***")`},
		{"LogValue", s.LogValue().String(), "***"},
		{"json", marshal(json.Marshal)(s), `"***"`},
		{"json key", marshal(json.Marshal)(map[Secret]int{s: 1}), `{"***":1}`},
		{"none %v", fmt.Sprintf("%v", Secret{}), ""},
		{"none %#v", fmt.Sprintf("%#v", Secret{}), `secret.New("")`},
		{"none json", marshal(json.Marshal)(Secret{}), `""`},
		{"none omitted", marshal(json.Marshal)(struct {
			S Secret `json:",omitzero"`
		}{}), `{}`},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s = %q, want %q", tt.name, tt.got, tt.want)
		}
	}
}

func TestEqual(t *testing.T) {
	a, again, b := New("a"), New(strings.Clone("a")), New("b")
	tests := []struct {
		name string
		got  bool
		want bool
	}{
		{"same", a.Equal(again), true},
		{"other", a.Equal(b), false},
		{"none", a.Equal(Secret{}), false},
		{"none and none", New("").Equal(Secret{}), true},
		{"==", a == again, true},
		{"matches", a.Matches("a"), true},
		{"matches other", a.Matches("b"), false},
		{"matches nothing", a.Matches(""), false},
		{"none matches nothing", Secret{}.Matches(""), false},
		{"zero", Secret{}.IsZero(), true},
		{"not zero", a.IsZero(), false},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s = %v, want %v", tt.name, tt.got, tt.want)
		}
	}
	if !cmp.Equal(a, again) || cmp.Equal(a, b) {
		t.Error("cmp.Equal does not use Equal")
	}
}

func TestReveal(t *testing.T) {
	for _, text := range []string{"", "a", canary, "ünï\x00"} {
		if got := New(text).Reveal(); got != text {
			t.Errorf("Reveal = %q, want %q", got, text)
		}
	}
}

func wantNoLeak(t *testing.T, out string) {
	t.Helper()
	for _, leak := range []string{canary, hex.EncodeToString([]byte(canary)), canary[:6], fmt.Sprint([]byte(canary))} {
		if strings.Contains(strings.ToLower(out), leak) {
			t.Errorf("it leaks: %s", out)
		}
	}
}

func panicText(v any) (text string) {
	defer func() { text = fmt.Sprint(recover()) }()
	panic(v)
}

func logText(v any) string {
	var b bytes.Buffer
	log.New(&b, "", 0).Printf("%v %+v", v, v)
	return b.String()
}

func slogText(v any, asJSON bool) string {
	var b bytes.Buffer
	var h slog.Handler = slog.NewTextHandler(&b, nil)
	if asJSON {
		h = slog.NewJSONHandler(&b, nil)
	}
	l := slog.New(h).With("with", v)
	l.Info("it", "value", v, slog.Group("group", "value", v), "error", fmt.Errorf("no: %v", v))
	return b.String()
}

func marshal(f func(any) ([]byte, error)) func(any) string {
	return func(v any) string {
		out, err := f(v)
		return string(out) + fmt.Sprint(errorText(err))
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func gobText(v any) string {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(v)
	return b.String() + errorText(err)
}

func templateText(v any) string {
	var b bytes.Buffer
	err := template.Must(template.New("").Parse("{{.}} {{printf \"%v\" .}}")).Execute(&b, v)
	return b.String() + errorText(err)
}
