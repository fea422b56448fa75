package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/weirlimit/weir/internal/golden"
)

// What of docs/config.md is made from the structs.
const (
	docBegins = "<!-- The fields: made by go test ./internal/config -update. -->\n"
	docEnds   = "<!-- The end of the fields. -->\n"
)

func TestDocumentation(t *testing.T) {
	name := filepath.Join(repository, "docs/config.md")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), docBegins)
	_, after, alsoOK := strings.Cut(rest, docEnds)
	if !ok || !alsoOK {
		t.Fatalf("%s has lost the lines %q and %q", name, docBegins, docEnds)
	}
	golden.Check(t, name, []byte(before+docBegins+fieldTables(describe(t))+docEnds+after))
}

func fieldTables(structs []structDoc) string {
	var b strings.Builder
	for _, s := range structs {
		title := s.typ.Name()
		if s.typ == reflect.TypeFor[File]() {
			title = "The file"
		}
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n| field | type | default | example | meaning |\n|---|---|---|---|---|\n", title, s.comment)
		for _, f := range s.fields {
			meaning := sentence(strings.TrimPrefix(f.comment, f.name+" "))
			if f.required {
				meaning += " Required."
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.name, typeName(f.typ), code(f.fallback), code(f.example), escape(meaning))
		}
	}
	return b.String() + "\n"
}

// sentence makes one of what a comment says after the name.
func sentence(text string) string {
	text = strings.TrimPrefix(strings.TrimPrefix(text, "is "), "are ")
	return strings.ToUpper(text[:1]) + text[1:]
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + escape(text) + "`"
}

func escape(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// What the documentation says is left out of a file of envoyproxy/ratelimit is what is.
func TestDocumentationOfImport(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(repository, "docs/config.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(data), "into an `envoy` section. ")
	sentence, _, alsoOK := strings.Cut(section, "they are left out")
	if !ok || !alsoOK {
		t.Fatal("it does not tell what is left out")
	}
	var listed []string
	for _, found := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(sentence, -1) {
		listed = append(listed, found[1])
	}
	slices.Sort(listed)
	if want := slices.Sorted(maps.Keys(withoutMeaning)); !slices.Equal(listed, want) {
		t.Errorf("it says that %q are left out, and those are %q", listed, want)
	}
}

// Each block of YAML in the documentation is a configuration that can be loaded.
func TestDocumentationLoads(t *testing.T) {
	for name, least := range map[string]int{"config.md": 3, "guard.md": 2, "budgets.md": 1, "gateway.md": 1} {
		data, err := os.ReadFile(filepath.Join(repository, "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		blocks := strings.Split(string(data), "```yaml\n")
		if len(blocks) <= least {
			t.Fatalf("%s has no examples", name)
		}
		first, _, _ := strings.Cut(blocks[1], "```")
		for _, block := range blocks[1:] {
			text, _, _ := strings.Cut(block, "```")
			if name == "gateway.md" && text != first { // they are added to the first one
				text = first + text
			}
			if _, err := Parse(name, []byte(text), exampleEnviron, exampleFiles); err != nil {
				t.Errorf("%v\nin\n%s", err, text)
			}
		}
	}
}

var (
	someLink    = regexp.MustCompile(`\]\(([A-Za-z0-9_./-]*)#([^)]+)\)`)
	someHeading = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// Links to a section lead to one that there is.
func TestDocumentationLinks(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil || len(names) < 10 {
		t.Fatal(len(names), err)
	}
	sections := map[string]map[string]bool{}
	for _, name := range append(names, filepath.Join(repository, "README.md")) {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range someLink.FindAllStringSubmatch(string(data), -1) {
			target := name
			if link[1] != "" {
				target = filepath.Join(filepath.Dir(name), link[1])
			}
			if sections[target] == nil {
				sections[target] = sectionsOf(t, target)
			}
			if !sections[target][link[2]] {
				t.Errorf("%s: %s#%s leads nowhere", filepath.Base(name), link[1], link[2])
			}
		}
	}
}

// sectionsOf returns the names that links use for the sections of a page.
func sectionsOf(t *testing.T, name string) map[string]bool {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, heading := range someHeading.FindAllStringSubmatch(string(data), -1) {
		all[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, heading[1])] = true
	}
	return all
}
