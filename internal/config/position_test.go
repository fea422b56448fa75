package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Wherever a scalar is said to be, there it is.
func TestPositions(t *testing.T) {
	texts := map[string]string{
		"comments":   "# one\na: b # two\n\n# three\nc: # four\n  - d # five\n  # six\n  - e\nf: g\n",
		"blocks":     "a: |\n  x\n\n  y\nb: c\nd: >-\n  z\ne:\n  - |\n    k\n  - f\n",
		"flow":       "a: {b: c,\n  d: [e,\n f, 'g h', \"i\"],\n j: k}\nl: m\n",
		"folded":     "a: b c\n  d e\nf: g\nh: \"i\n  j\"\nk: l\n",
		"characters": "ä: ö # ü\n\"日本\": [é, 'ß', x]\n",
		"returns":    "a: b # c\r\nd:\r\n  - e\r\n\r\n  - f # g\r\nh: i\r\n",
		"markers":    "---\na: b\n...\n",
	}
	names, err := filepath.Glob("testdata/good/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(names, filepath.Join(repository, "weir.example.yaml")) {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(data)
	}
	for name, text := range texts {
		text = plainText([]byte(text))
		r := newReport(text)
		n := parseYAML(name, text, r)
		if err := r.err(nil); err != nil {
			t.Error(err)
			continue
		}
		if count := checkPlaces(t, n, r.text.lines); count == 0 && strings.Contains(text, "\na:") {
			t.Errorf("%s: nothing was looked at", name)
		}
	}
}

// checkPlaces returns how many scalars and keys it has looked at.
func checkPlaces(t *testing.T, n *node, lines []string) (count int) {
	t.Helper()
	if n.kind == scalar {
		checkPlace(t, n.text, n.at, lines)
		count++
	}
	for _, item := range n.items {
		count += checkPlaces(t, item, lines)
	}
	for _, p := range n.pairs {
		checkPlace(t, p.key, p.at, lines)
		count += 1 + checkPlaces(t, p.value, lines)
	}
	return count
}

func checkPlace(t *testing.T, text string, at place, lines []string) {
	t.Helper()
	there := []rune(lines[at.line-1])[at.column-1:]
	first, _, _ := strings.Cut(text, " ")
	rest := strings.TrimLeft(string(there), `"'`)
	if !strings.HasPrefix(rest, first) && there[0] != '|' && there[0] != '>' {
		t.Errorf("%v:%d: there is %q, not %q", at, at.column, string(there), text)
	}
	if at.lines == 0 && len(there) < at.width {
		t.Errorf("%v:%d: %q has no %d characters", at, at.column, string(there), at.width)
	}
}

// What is masked takes another width than the mask; the mark stays under its place.
func TestCut(t *testing.T) {
	for _, test := range []struct {
		line   string
		spans  [][2]int
		column int
		want   string
		marked int
	}{
		{"abc", nil, 2, "abc", 2},
		{"a: secret, b: x", [][2]int{{3, 9}}, 15, "a: ***, b: x", 12},
		{"a: s, b: x", [][2]int{{3, 4}}, 10, "a: ***, b: x", 12},
		{"a: secret", [][2]int{{3, 9}}, 4, "a: ***", 4},
		{"a: secret", [][2]int{{3, 9}}, 7, "a: ***", 4},
		{"ab cd", [][2]int{{3, 5}, {0, 2}, {0, 2}}, 4, "*** ***", 5},
		{"abcd", [][2]int{{0, 3}, {1, 4}}, 1, "******", 1},
	} {
		if got, marked := cut([]rune(test.line), test.spans, test.column); got != test.want || marked != test.marked {
			t.Errorf("cut(%q, %v, %d) = %q, %d, want %q, %d", test.line, test.spans, test.column, got, marked, test.want, test.marked)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"rate", "rate", 0}, {"brust", "burst", 1}, {"tokn", "token", 1}, {"polices", "policies", 1}, {"abc", "", 3}, {"kitten", "sitting", 3}} {
		if got := distance(test.a, test.b); got != test.want || distance(test.b, test.a) != test.want {
			t.Errorf("from %q to %q: %d, want %d", test.a, test.b, got, test.want)
		}
	}
}
