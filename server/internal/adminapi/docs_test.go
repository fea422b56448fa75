package adminapi

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/tiered"
)

// docsPage tells operators what there is, with examples.
const docsPage = "../../../docs/admin.md"

// example is a curl command and, in the next block, its answer.
var example = regexp.MustCompile("(?s)```\n(curl [^`]*)\n```\n(?:[^`]*)```(json|text)\n(.*?)```")

// What docs/admin.md shows is what happens, from the first example to the last.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile(docsPage)
	if err != nil {
		t.Fatal(err)
	}
	examples := example.FindAllStringSubmatch(string(page), -1)
	if got, want := len(examples), strings.Count(string(page), "```\ncurl "); got != want || want < len(calls)-1 {
		t.Fatalf("%d of %d examples have an answer", got, want)
	}
	frozen(t, func(t *testing.T) {
		d := newDaemon(t)
		ip := []ruleset.Attribute{{Name: "ip", Value: "192.0.2.1"}}
		d.check("api", ruleset.Query{Key: "alice", Cost: 15, Keys: ip})
		d.records <- d.check("api", ruleset.Query{Key: "bob", Cost: 1, Keys: ip})
		d.records <- d.check("api", ruleset.Query{Key: "alice", Cost: 6, Keys: ip})
		close(d.records)
		d.lost = 2
		d.callProvider()
		d.createStreams("alice", 5)
		d.createStreams("bob", 1)
		for _, e := range examples {
			command, kind, want := e[1], e[2], e[3]
			got := d.curl(command)
			if kind == "json" {
				want = compact(t, want)
			}
			if got != want {
				t.Errorf("%s\nis documented as\n%sand says\n%s", command, want, got)
			}
		}
	})
}

// docs/admin.md explains every figure of the store, and no other.
func TestDocsOfFigures(t *testing.T) {
	page, err := os.ReadFile(docsPage)
	if err != nil {
		t.Fatal(err)
	}
	for name, stats := range map[string]any{"memory": memstore.Stats{}, "tier": tiered.Stats{}} {
		_, text, _ := strings.Cut(string(page), "| `"+name+"` | |\n")
		text, _, _ = strings.Cut(text, "\n\n")
		var documented []string
		for line := range strings.Lines(text) {
			names, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
			for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(names, -1) {
				documented = append(documented, m[1])
			}
		}
		fields := figures(map[string]any{name: stats})[name].(map[string]any)
		if diff := cmp.Diff(slices.Sorted(maps.Keys(fields)), slices.Sorted(slices.Values(documented))); diff != "" {
			t.Errorf("%s (-answer +documented):\n%s", name, diff)
		}
	}
}

// words are those of a command, which may be quoted.
var words = regexp.MustCompile(`'[^']*'|[^\s\\]+`)

// curl carries a command out.
func (d *daemon) curl(command string) string {
	method, url, body := "GET", "", ""
	list := words.FindAllString(command, -1)
	for i := 1; i < len(list); i++ {
		switch word := strings.Trim(list[i], "'"); word {
		case "-s", "-N", "-sN":
		case "-X":
			i++
			method = list[i]
		case "-d":
			i++
			body = strings.Trim(list[i], "'")
			if method == "GET" {
				method = "POST"
			}
		default:
			url = word
		}
	}
	path, ok := strings.CutPrefix(url, "http://127.0.0.1:8080")
	if !ok {
		d.t.Errorf("%s: goes to %q", command, url)
	}
	return d.send(method + " " + path + " " + body).Body.String()
}

func compact(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err != nil {
		t.Errorf("%s: %v", text, err)
	}
	return b.String() + "\n"
}
