package config

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
)

// fuzzFiles has one secret under every name.
func fuzzFiles(string) ([]byte, fs.FileMode, error) {
	return []byte(strings.Repeat("f", 40)), 0o600, nil
}

// revealed returns the tree of a configuration as YAML, with its secrets.
func (c *Config) revealed(t *testing.T) []byte {
	t.Helper()
	p := &printer{reveal: true}
	p.mapping(c.tree, "")
	var b bytes.Buffer
	if err := p.write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Whatever the file and the environment have in them, there is no panic, problems have a
// place and a sentence, the server takes a configuration that is right, and what is
// printed of it means the same.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/broken/*.yaml", "testdata/good/*.yaml", "testdata/envoy/*.yaml", "../../weir.example.yaml"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data, strings.Join(environOf(string(data)), "\n"))
		}
	}
	f.Add([]byte{}, "WEIR__HOSTS__0=null\nWEIR__HOSTS__1=~\nWEIR__HOSTS__2=-\nWEIR__HOSTS__3=true")
	f.Add([]byte("policies: {null: {limits: [{name: '...', rate: 1, per: 1s}]}, 12: {limits: [{rate: 1, per: 1s, name: \"0x1\"}]}}"), "")
	f.Fuzz(func(t *testing.T, data []byte, variables string) {
		environ := strings.Split(variables, "\n")
		c, err := Parse("weir.yaml", data, environ, fuzzFiles)
		if err != nil {
			checkError(t, err)
			return
		}
		s := c.Server()
		s.Limiter = uncalled{}
		if err := s.Validate(); err != nil {
			t.Fatalf("the server does not take it: %v", err)
		}
		text := c.revealed(t)
		if bytes.Contains(text, []byte("${")) {
			return // a variable whose value looks like one
		}
		again, err := Parse("weir.yaml", text, nil, fuzzFiles)
		if err != nil {
			t.Fatalf("%v\nin what was printed:\n%s", err, text)
		}
		if !reflect.DeepEqual(c.Live().Policies, again.Live().Policies) || !reflect.DeepEqual(c.Live().Clients, again.Live().Clients) || !reflect.DeepEqual(c.Live().Operators, again.Live().Operators) {
			t.Fatalf("differs from what was printed:\n%s", text)
		}
		if second := again.revealed(t); !bytes.Equal(text, second) {
			t.Fatalf("printed as\n%s\nand then as\n%s", text, second)
		}
	})
}

// uncalled is a Limiter that is never called.
type uncalled struct{ weir.Limiter }

func checkError(t *testing.T, err error) {
	t.Helper()
	bad, ok := errors.AsType[*Error](err)
	if !ok || len(bad.Problems) == 0 {
		t.Fatalf("%T", err)
	}
	for _, p := range bad.Problems {
		if p.File == "" || p.Text == "" || strings.Contains(p.Text, "\n") || p.Line > 0 && p.Column < 1 {
			t.Fatalf("%+v", p)
		}
		if strings.Count(p.Shown, "\n") > 1 {
			t.Fatalf("%q", p.Shown)
		}
	}
}

func FuzzImportEnvoy(f *testing.F) {
	names, err := filepath.Glob("testdata/envoy/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, _, err := ImportEnvoy("edge.yaml", data); err != nil {
			checkError(t, err)
		}
	})
}

// The parser is not ours, and its tokens are not what YAML says in every corner: whatever
// it makes of a text, a tree is made of it.
func FuzzYAML(f *testing.F) {
	for _, text := range []string{"a: b", "- - ? x\n: |\n y", "{a: [b, 'c']}", "a: >-\n x\n\n y\n", "? {a: b}\n: c", "%YAML 1.2\n---\na", "\"\\x41\\u0041\": &a !!b *a", "a:\n\tb: c", "a: b: c", "---\n...\n---\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := newReport(text)
		n := parseYAML("weir.yaml", text, r)
		if n == nil && len(r.problems) == 0 {
			t.Fatal("there is neither a tree nor a problem")
		}
		r.finish(r.problems)
	})
}
