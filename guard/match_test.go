package guard

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func mustMatcher(tb testing.TB, patterns ...string) *matcher {
	tb.Helper()
	m, problems := newMatcher(patterns)
	if len(problems) > 0 {
		tb.Fatalf("problems = %v", problems)
	}
	return m
}

func TestFind(t *testing.T) {
	patterns := []string{
		"/v1/users", "POST /v1/users", "/v1/users/{id}", "DELETE /v1/users/{id}", "GET /v1/users/me",
		"GET /v1/files/{path...}", "/v1/users/*", "/river.StreamService/CreateStream",
		"/river.StreamService/*", "/river.*", "eth_getLogs", "eth_*", "eth_get*", "/",
		"HEAD /v1/files/*", "/bücher/{name}", "/pre/ab*", "/pre/ax*", "/v3/*",
	}
	tests := []struct{ method, path, want string }{
		{"GET", "/v1/users", "/v1/users"},
		{"", "/v1/users", "/v1/users"},
		{"POST", "/v1/users", "POST /v1/users"},
		{"post", "/v1/users", "/v1/users"},
		{"GET", "/v1/users/42", "/v1/users/{id}"},
		{"DELETE", "/v1/users/42", "DELETE /v1/users/{id}"},
		{"GET", "/v1/users/me", "GET /v1/users/me"},
		{"DELETE", "/v1/users/me", "DELETE /v1/users/{id}"},
		{"PUT", "/v1/users/me", "/v1/users/{id}"},
		{"GET", "/v1/users/42/posts", "/v1/users/*"},
		{"GET", "/v3", "/v3/*"},
		{"GET", "/v3/", "/v3/*"},
		{"GET", "/v3/a/c", "/v3/*"},
		{"GET", "/v30", ""},
		{"GET", "/v1/files/a/b", "GET /v1/files/{path...}"},
		{"GET", "/v1/files", "GET /v1/files/{path...}"},
		{"HEAD", "/v1/files/a", "HEAD /v1/files/*"},
		{"POST", "/v1/files/a", ""},
		{"", "/river.StreamService/CreateStream", "/river.StreamService/CreateStream"},
		{"", "/river.StreamService/GetStream", "/river.StreamService/*"},
		{"", "/river.StreamService", "/river.StreamService/*"},
		{"", "/river.Other/Get", "/river.*"},
		{"", "/river.", "/river.*"},
		{"", "/river", ""},
		{"", "eth_getLogs", "eth_getLogs"},
		{"POST", "eth_getLogs", "eth_getLogs"},
		{"", "eth_getBalance", "eth_get*"},
		{"", "eth_call", "eth_*"},
		{"", "eth_", "eth_*"},
		{"", "net_version", ""},
		{"", "/eth_call", ""},
		{"GET", "/", "/"},
		{"GET", "", "/"},
		{"OPTIONS", "*", ""},
		{"GET", "/bücher/ä", "/bücher/{name}"},
		{"GET", "/b\xfccher/x", ""},
		{"GET", "/pre/abc", "/pre/ab*"},
		{"GET", "/pre/axe", "/pre/ax*"},
		{"GET", "/pre/a", ""},
		{"GET", "/pre/b", ""},

		// No spelling of a path gets past its limit.
		{"POST", "/v1/users/", "POST /v1/users"},
		{"POST", "/v1/users//", "POST /v1/users"},
		{"POST", "//v1/users", "POST /v1/users"},
		{"POST", "/v1///users", "POST /v1/users"},
		{"POST", "/v1/./users", "POST /v1/users"},
		{"POST", "/v1/users/.", "POST /v1/users"},
		{"POST", "/v1/x/../users", "POST /v1/users"},
		{"POST", "/../../v1/users", "POST /v1/users"},
		{"POST", "/v1/users/x/..", "POST /v1/users"},
		{"POST", "v1/users", "POST /v1/users"},
		{"", "river.StreamService/CreateStream", "/river.StreamService/CreateStream"},
		{"GET", "/..", "/"},
		{"GET", "//", "/"},
		{"GET", "/v1/users/...", "/v1/users/{id}"},
		{"GET", "/v1/users" + strings.Repeat("/x", 100) + strings.Repeat("/..", 100), "/v1/users"},
		{"GET", "/v1/users" + strings.Repeat("/x", 100) + strings.Repeat("/..", 99), "/v1/users/{id}"},
		{"GET", strings.Repeat("/x", 100), ""},
	}
	m := mustMatcher(t, patterns...)
	for _, tt := range tests {
		got := ""
		if i := m.find(tt.method, tt.path); i >= 0 {
			got = patterns[i]
		}
		if got != tt.want {
			t.Errorf("find(%q, %q) = %q, want %q", tt.method, tt.path, got, tt.want)
		}
	}
}

// TestFindLongest has a pattern with as many segments as possible, and paths with one less and one more.
func TestFindLongest(t *testing.T) {
	segments := strings.Repeat("/a", maxSegments-1)
	for pattern, want := range map[string][3]int{"/b": {-1, 0, -1}, "/b*": {-1, 0, 0}, "/{x}": {-1, 0, -1}, "/*": {0, 0, 0}} {
		m := mustMatcher(t, segments+pattern)
		got := [3]int{m.find("", segments), m.find("", segments+"/b"), m.find("", segments+"/b/c")}
		if got != want {
			t.Errorf("%s after %d segments: found %v, want %v", pattern, maxSegments-1, got, want)
		}
	}
}

// TestFindBacktracks has requests for which the walk follows a literal and has to come back.
func TestFindBacktracks(t *testing.T) {
	m := mustMatcher(t, "/a/{x}/c", "/{y}/{z}/d", "GET /a/b/e", "/{y}/{z}/e", "POST /q", "/{y}/*", "/*")
	for _, tt := range []struct {
		method, path string
		want         int
	}{
		{"", "/a/b/c", 0},
		{"", "/a/b/d", 1},
		{"GET", "/a/b/e", 2},
		{"PUT", "/a/b/e", 3},
		{"POST", "/q", 4},
		{"PUT", "/q", 5},
		{"PUT", "/a", 5},
		{"PUT", "/a/b", 5},
		{"PUT", "/a/b/c/d", 5},
		{"PUT", "/", 6},
	} {
		if got := m.find(tt.method, tt.path); got != tt.want {
			t.Errorf("find(%q, %q) = %d, want %d", tt.method, tt.path, got, tt.want)
		}
	}
}

func TestFindEverything(t *testing.T) {
	m := mustMatcher(t, "*", "/*", "GET /a", "x")
	for _, tt := range []struct {
		method, path string
		want         int
	}{{"GET", "/a", 2}, {"HEAD", "/a", 2}, {"PUT", "/a", 1}, {"", "", 1}, {"", "x", 3}, {"", "y", 0}, {"OPTIONS", "*", 0}, {"\x00", "\xff", 0}} {
		if got := m.find(tt.method, tt.path); got != tt.want {
			t.Errorf("find(%q, %q) = %d, want %d", tt.method, tt.path, got, tt.want)
		}
	}
	if got := mustMatcher(t).find("GET", "/a"); got != -1 {
		t.Errorf("find without patterns = %d, want -1", got)
	}
}

func TestPatternProblems(t *testing.T) {
	long := "/" + strings.Repeat("a", 512)
	tests := []struct{ pattern, want string }{
		{"", "is empty"},
		{long, "has 513 bytes: at most 512 are possible"},
		{long[:512], ""},
		{strings.Repeat("/a", 33), "has 33 segments: at most 32 are possible"},
		{strings.Repeat("/a", 32), ""},
		{"/a\x00", `has the character '\x00'`},
		{"/a\u200b", "cannot be printed"},
		{"/a\u00a0", "cannot be printed"},
		{"/\xff", "is not UTF-8"},
		{"/a?b=c", "has '?'"},
		{"/a#b", "has '#'"},
		{"/a%2fb", "has the encoded character %2f"},
		{"/100%", ""},
		{"get /a", `has the method "get"`},
		{" /a", `has the method ""`},
		{"G/T /a", `has the method "G/T"`},
		{"GET  /a", "has a space"},
		{"GET /a b", "has a space"},
		{"GET /a ", "has a space"},
		{"GET ", "has a method before"},
		{"GET eth_call", `has a method before "eth_call"`},
		{"GET *", `has a method before "*"`},
		{"M-SEARCH /a", ""},
		{"a/b", "has a slash, but not at its beginning"},
		{"eth_{x}", "has a brace"},
		{"eth_*x", "has a * that is not at its end"},
		{"**", "has a * that is not at its end"},
		{"/a/*/b", "has a * that is not at its end"},
		{"/a*/b", "has a * that is not at its end"},
		{"/a/**", "has a * that is not at its end"},
		{"/*a", "has a * that is not at its end"},
		{"/a/", "ends with a slash"},
		{"/a//b", "has an empty segment"},
		{"//a", "has an empty segment"},
		{"/a/./b", `has the segment "."`},
		{"/a/..", `has the segment ".."`},
		{"/{}", `has the wildcard "{}"`},
		{"/{...}", `has the wildcard "{...}"`},
		{"/{$}", `has the wildcard "{$}"`},
		{"/{1a}", `has the wildcard "{1a}"`},
		{"/{a}/{a}", `has the wildcard name "a" twice`},
		{"/{a}/{a...}", `has the wildcard name "a" twice`},
		{"/{a...}/b", `has "{a...}" before its end`},
		{"/{a", `has the segment "{a"`},
		{"/a}", `has the segment "a}"`},
		{"/{{a}}", `has the segment "{{a}}"`},
		{"/{x}y", `has the segment "{x}y"`},
		{"/y{x}", `has the segment "y{x}"`},
		{"/{x}*", `has the segment "{x}*"`},
	}
	for _, tt := range tests {
		m, problems := newMatcher([]string{"/ok", tt.pattern})
		switch {
		case tt.want == "":
			if len(problems) > 0 {
				t.Errorf("%q: %v, want no problem", tt.pattern, problems)
			}
		case len(problems) != 1 || problems[0].index != 1 || !strings.Contains(problems[0].problem, tt.want):
			t.Errorf("%q: problems = %v, want 1: %s", tt.pattern, problems, tt.want)
		case m != nil:
			t.Errorf("%q: a matcher in spite of a problem", tt.pattern)
		}
	}
}

func TestPatternConflicts(t *testing.T) {
	tests := []struct{ a, b, want string }{
		{"/a", "/a", `matches the same requests as "/a"`},
		{"/a/{x}", "/a/{y}", `matches the same requests as "/a/{x}"`},
		{"/a/*", "/a/{x...}", `matches the same requests as "/a/*"`},
		{"eth_*", "eth_*", `matches the same requests as "eth_*"`},
		{"*", "*", `matches the same requests as "*"`},
		{"/a/{x}", "/{y}/b", `contradicts "/a/{x}": both match "/a/b"`},
		{"/a", "GET /*", `both match "GET /a"`},
		{"GET /a/*", "/a/b", `both match "GET /a/b"`},
		{"GET /a/{x}", "/a/b", `both match "GET /a/b"`},
		{"HEAD /a/{x}", "GET /a/b", `both match "HEAD /a/b"`},
		{"/{x}", "/river.*", `both match "/river."`},
		{"/{s}/{m}", "/river.*", `both match "/river./m"`},
		{"/{x}/b*", "/a*", `both match "/a/b"`},
		{"/{x}/b/*", "/a*", `both match "/a/b"`},
		{"/{x}/*", "GET /a*", ""},
		{"GET /{x}/*", "/a*", `both match "GET /a"`},
		{"GET /{x}/bc*", "/{y}/b*", ""},
		{"/a/{x}/c/*", "/{y}/b/*", `both match "/a/b/c"`},
		{"GET /*", "/", `both match "GET /"`},

		{"/a", "/a/*", ""},
		{"/a/*", "/a*", ""},
		{"/{x}/*", "/*", ""},
		{"/", "/*", ""},
		{"GET /a", "HEAD /a", ""},
		{"GET /a/{x}", "POST /a/b", ""},
		{"/a/{x}/c", "/{y}/b/d", ""},
		{"/eth_*", "eth_*", ""},
		{"eth_*", "eth_get*", ""},
		{"eth_call", "eth_*", ""},
		{"*", "GET /a/{x}", ""},
	}
	for _, tt := range tests {
		for range 2 {
			_, problems := newMatcher([]string{tt.a, tt.b})
			if tt.want == "" {
				if len(problems) > 0 {
					t.Errorf("%q, %q: %v, want no problem", tt.a, tt.b, problems)
				}
			} else if len(problems) != 1 || problems[0].index != 1 || !strings.Contains(problems[0].problem, tt.want) {
				t.Errorf("%q, %q: problems = %v, want 1: %s", tt.a, tt.b, problems, tt.want)
			}
			if strings.Contains(tt.want, "both match") { // the other way round as well, with the same request
				tt.a, tt.b, tt.want = tt.b, tt.a, tt.want[strings.Index(tt.want, "both"):]
			}
			if tt.want == "" {
				tt.a, tt.b = tt.b, tt.a
			}
		}
	}
}

// TestAllProblems shows that each bad pattern is reported, in the order of the patterns, and that it hides
// no other.
func TestAllProblems(t *testing.T) {
	_, problems := newMatcher([]string{"/a/{x}", "/{", "/{x}/b", "get /", "/a/{y}", "/c"})
	var got []int
	for _, p := range problems {
		got = append(got, p.index)
	}
	if want := []int{1, 2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("problems = %v, want those of %v", problems, want)
	}
}

func TestTooManyPatterns(t *testing.T) {
	patterns := manyPatterns(maxPatterns)
	mustMatcher(t, patterns...)
	_, problems := newMatcher(append(patterns, "/more"))
	if len(problems) != 1 || problems[0].index != maxPatterns || !strings.Contains(problems[0].problem, "10001 patterns") {
		t.Errorf("problems = %v", problems)
	}
}

// TestTooManySteps has patterns with a literal or {name} in every segment, told apart by the last.
func TestTooManySteps(t *testing.T) {
	combinations := func(depth int) (patterns []string) {
		for set := range 1 << depth {
			var b strings.Builder
			for i := range depth {
				if set>>i&1 == 0 {
					fmt.Fprintf(&b, "/{n%d}", i)
				} else {
					b.WriteString("/a")
				}
			}
			patterns = append(patterns, fmt.Sprintf("%s/end%d", b.String(), set))
		}
		return patterns
	}
	m := mustMatcher(t, combinations(6)...) // 2^7 - 1 nodes, and one end
	if got := m.find("GET", "/a/a/a/a/a/a/end0"); got != 0 {
		t.Errorf("found %d, want the last pattern that is tried", got)
	}
	if got, _ := m.paths.steps(); got != 191 { // and an end for each of 2^6
		t.Errorf("steps = %d, want 191", got)
	}
	_, problems := newMatcher(combinations(7))
	if len(problems) != 1 || !strings.Contains(problems[0].problem, "could take 383 steps") {
		t.Errorf("problems = %v", problems)
	}
}

// TestServeMux shows that a request which http.ServeMux routes to a handler is counted for that handler's
// pattern, however its path is encoded.
func TestServeMux(t *testing.T) {
	patterns := []string{"GET /files/{name}", "GET /static/{rest...}", "/v1/users", "POST /v1/users", "GET /{$}", "/x/{a}/{b}"}
	ours := slices.Clone(patterns)
	ours[4] = "GET /"
	m := mustMatcher(t, ours...)
	served := -1
	mux := http.NewServeMux()
	for i, p := range patterns {
		mux.HandleFunc(p, func(http.ResponseWriter, *http.Request) { served = i })
	}
	count := 0
	for _, method := range []string{"GET", "HEAD", "POST"} {
		for _, target := range []string{
			"/", "//", "/files/a", "/files/a%2Fb", "/files/a%2fb", "/files/%2e%2e", "/files/%2E", "/files/..", "/files/%61",
			"/files/%252F", "/files/%2e%2e%2fv1", "/static/a/b", "/static/%2e%2e/v1/users", "/static/../v1/users", "/static//a",
			"/static/", "/v1/users", "/v1/users/", "/v1/%75sers", "/v1%2Fusers", "//v1/users", "/v1/./users", "/x/a%2Fb/c", "/x/%20/b", "/x/a",
			"http://host", "http://host/v1/users",
		} {
			r := httptest.NewRequest(method, target, nil)
			served = -1
			mux.ServeHTTP(httptest.NewRecorder(), r)
			if served < 0 {
				continue // not found, or redirected
			}
			count++
			if got := m.find(r.Method, RequestPath(r.URL)); got != served {
				t.Errorf("%s %s: counted for %d, served by %q", method, target, got, patterns[served])
			}
		}
	}
	if count < 30 {
		t.Errorf("only %d requests were served", count)
	}
}

func TestRequestPath(t *testing.T) {
	for target, want := range map[string]string{
		"/a/b":            "/a/b",
		"/a%20b":          "/a b",
		"/%61":            "/a",
		"/a%2Fb/%63":      "/a%2Fb/c",
		"/a/%2e%2e/b":     "/a/%2E%2E/b",
		"/a/%2e./b":       "/a/%2E%2E/b",
		"/a/.%2e/../b%2f": "/a/%2E%2E/../b%2F",
		"/a/%2e":          "/a/%2E",
		"/a/../b":         "/a/../b",
		"/a%252Fb":        "/a%2Fb",
	} {
		u, err := url.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		if got := RequestPath(u); got != want {
			t.Errorf("RequestPath(%s) = %q, want %q", target, got, want)
		}
	}
}

// modelPattern is a pattern as a regular expression of the cleaned path.
type modelPattern struct {
	method string
	path   *regexp.Regexp
}

var modelRest, modelName = regexp.MustCompile(`\{[^}]*\.\.\.\}$`), regexp.MustCompile(`\\\{[^}]*\\\}`)

func newModelPattern(text string) modelPattern {
	method, target, ok := strings.Cut(text, " ")
	if !ok {
		method, target = "", text
	}
	target = modelRest.ReplaceAllString(target, "*")
	expr := ""
	if base, ok := strings.CutSuffix(target, "/*"); ok {
		expr = regexp.QuoteMeta(base) + "(/.*)?"
	} else if base, ok := strings.CutSuffix(target, "*"); ok {
		expr = regexp.QuoteMeta(base) + ".*"
	} else {
		expr = regexp.QuoteMeta(target)
	}
	expr = modelName.ReplaceAllString(expr, "[^/]+")
	return modelPattern{method, regexp.MustCompile(`(?s)\A` + expr + `\z`)}
}

func (p modelPattern) matches(method, target string) bool {
	if p.method != "" && p.method != method && (p.method != "GET" || method != "HEAD") {
		return false
	}
	if target == "" || strings.Contains(target, "/") {
		target = path.Clean("/" + target)
	}
	return p.path.MatchString(target)
}

// universe has requests that tell apart any two patterns of drawPattern.
var universe = func() (requests [][2]string) {
	segments := []string{"a", "ab", "abx", "ax", "b", "bx", "x"}
	paths := []string{""}
	targets := append(slices.Clone(segments), "/")
	for range 3 {
		var longer []string
		for _, p := range paths {
			for _, s := range segments {
				longer = append(longer, p+"/"+s)
			}
		}
		paths = longer
		targets = append(targets, longer...)
	}
	for _, method := range []string{"", "GET", "HEAD", "POST"} {
		for _, target := range targets {
			requests = append(requests, [2]string{method, target})
		}
	}
	return requests
}()

func drawPattern(t *rapid.T) string {
	literals := []string{"a", "ab", "b"}
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		return rapid.SampledFrom([]string{"*", "a", "ab", "a*", "ab*"}).Draw(t, "name")
	case 1:
		return rapid.SampledFrom([]string{"/", "GET /", "/*", "POST /*"}).Draw(t, "root")
	}
	text := rapid.SampledFrom([]string{"", "", "GET ", "HEAD ", "POST "}).Draw(t, "method")
	for i := range rapid.IntRange(1, 2).Draw(t, "segments") {
		text += "/" + rapid.SampledFrom(append(literals, fmt.Sprintf("{n%d}", i))).Draw(t, "segment")
	}
	tails := []string{"", "", "/*", "/{rest...}", "/a*", "/ab*"}
	if !strings.HasSuffix(text, "}") {
		tails = append(tails, "*")
	}
	return text + rapid.SampledFrom(tails).Draw(t, "tail")
}

// matchSet says which requests of the universe a pattern matches.
func matchSet(text string) []bool {
	p := newModelPattern(text)
	set := make([]bool, len(universe))
	for i, r := range universe {
		set[i] = p.matches(r[0], r[1])
	}
	return set
}

func within2(a, b []bool) bool {
	for i := range a {
		if a[i] && !b[i] {
			return false
		}
	}
	return true
}

func overlap2(a, b []bool) bool {
	for i := range a {
		if a[i] && b[i] {
			return true
		}
	}
	return false
}

// TestMatcherProperty compares the matcher with sets of requests: patterns are refused exactly if two sets
// are equal, or overlap while neither is within the other; and the smallest set is found, for any
// spelling of the path.
func TestMatcherProperty(t *testing.T) {
	sets := map[string][]bool{}
	setOf := func(text string) []bool {
		if sets[text] == nil {
			sets[text] = matchSet(text)
		}
		return sets[text]
	}
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		var patterns []string
		bad := map[int]bool{}
		for range rapid.IntRange(1, 8).Draw(t, "patterns") {
			p, i := drawPattern(t), len(patterns)
			for _, other := range patterns {
				a, b := setOf(p), setOf(other)
				if ab, ba := within2(a, b), within2(b, a); ab && ba || overlap2(a, b) && !ab && !ba {
					bad[i] = true
				}
			}
			if bad[i] && rapid.Bool().Draw(t, "leave it out") {
				delete(bad, i)
				continue
			}
			patterns = append(patterns, p)
		}
		m, problems := newMatcher(patterns)
		for _, p := range problems {
			if !bad[p.index] {
				t.Fatalf("%q: problem %v", patterns, p)
			}
			delete(bad, p.index)
			checkExample(t, patterns, p)
		}
		if len(bad) > 0 {
			t.Fatalf("%q: no problem of %v, only %v", patterns, bad, problems)
		}
		if m == nil {
			return
		}
		accepted++
		for i, r := range universe {
			want := -1
			for j, p := range patterns {
				if setOf(p)[i] && (want < 0 || within2(setOf(p), setOf(patterns[want]))) {
					want = j
				}
			}
			if got := m.find(r[0], r[1]); got != want {
				t.Fatalf("%q: find(%q) = %d, want %d", patterns, r, got, want)
			}
			if i%17 != 0 || !strings.HasPrefix(r[1], "/") {
				continue
			}
			for _, dirty := range []string{
				r[1] + "/", "/" + r[1], strings.ReplaceAll(r[1], "/", "/./"), strings.ReplaceAll(r[1], "/", "/q/../"), r[1] + "/q/..", "/.." + r[1],
			} {
				if got := m.find(r[0], dirty); got != want {
					t.Fatalf("%q: find(%q, %q) = %d, want %d", patterns, r[0], dirty, got, want)
				}
			}
		}
	})
	if accepted == 0 {
		t.Error("no patterns were accepted")
	}
}

var conflictExample = regexp.MustCompile(`contradicts "(.*)": both match "(.*)", and`)

// checkExample checks that the request in a problem matches both patterns.
func checkExample(t *rapid.T, patterns []string, p patternError) {
	parts := conflictExample.FindStringSubmatch(p.problem)
	if parts == nil {
		return
	}
	method, target, ok := strings.Cut(parts[2], " ")
	if !ok {
		method, target = "", parts[2]
	}
	for _, text := range []string{patterns[p.index], parts[1]} {
		if !newModelPattern(text).matches(method, target) {
			t.Fatalf("%q does not match the request in: %s", text, p.problem)
		}
	}
}

func FuzzFind(f *testing.F) {
	fixed := []string{"/v1/users", "POST /v1/users", "/v1/users/{id}", "GET /v1/files/{p...}", "/river.Stream*", "eth_get*", "eth_call", "/"}
	mustMatcher(f, fixed...)
	f.Add("/a/{x}", "GET /a/b*", "GET", "/a/b")
	f.Add("*", "eth_*", "", "eth_call")
	f.Add("/*", "/{a}/b", "HEAD", "//v1/./users/..//x/b/")
	f.Add("GET /q", "/q/{x...}", "\xff", "v1/\x00")
	f.Fuzz(func(t *testing.T, a, b, method, target string) {
		if len(target) > 1000 {
			return
		}
		for _, patterns := range [][]string{fixed, {a}, {b}, {a, b}, append(slices.Clone(fixed), a)} {
			m, problems := newMatcher(patterns)
			if (m == nil) != (len(problems) > 0) {
				t.Fatalf("%q: matcher %v with problems %v", patterns, m, problems)
			}
			if m == nil || strings.Contains(a+b, "\ufffd") { // regexp takes invalid bytes for it
				continue
			}
			got := m.find(method, target)
			for i, p := range patterns {
				matches := newModelPattern(p).matches(method, target)
				if matches && got == noPattern || !matches && got == i {
					t.Fatalf("%q: find(%q, %q) = %d, but whether %q matches is %v", patterns, method, target, got, p, matches)
				}
				if !matches || got == i {
					continue
				}
				mine, _ := parsePattern(patterns[got])
				other, _ := parsePattern(p)
				if r := mine.compare(&other); !r.within || r.contains {
					t.Fatalf("%q: find(%q, %q) = %d, but %d is not more general", patterns, method, target, got, i)
				}
			}
		}
	})
}

// manyPatterns returns n patterns of all kinds, of which each finds some of manyRequests.
func manyPatterns(n int) []string {
	patterns := make([]string, 0, n)
	for i := range n {
		patterns = append(patterns, fmt.Sprintf([]string{
			"/v1/resource%d/list", "POST /v1/resource%d/list", "/v2/resource%d/{id}/items", "/package.Service%d/*", "method%d_*",
		}[i%5], i-i%5))
	}
	return patterns
}

var manyRequests = []struct{ name, method, path string }{
	{"literal", "GET", "/v1/resource0/list"},
	{"method", "POST", "/v1/resource0/list"},
	{"wildcard", "GET", "/v2/resource5/12345/items"},
	{"prefix", "", "/package.Service0/Method"},
	{"name", "", "method5_call"},
	{"cleaned", "GET", "//v1/./resource0/x/../list/"},
	{"none", "GET", "/v2/resource5/12345/other"},
}

func TestFindAllocatesNothing(t *testing.T) {
	m := mustMatcher(t, manyPatterns(100)...)
	for _, r := range manyRequests {
		if allocs := testing.AllocsPerRun(100, func() { m.find(r.method, r.path) }); allocs != 0 {
			t.Errorf("%s: %v allocations", r.name, allocs)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	for _, n := range []int{10, 1_000, 10_000} {
		m := mustMatcher(b, manyPatterns(n)...)
		for _, r := range manyRequests {
			b.Run(fmt.Sprintf("patterns=%d/%s", n, r.name), func(b *testing.B) {
				if found := m.find(r.method, r.path) >= 0; found != (r.name != "none") {
					b.Fatalf("found = %v", found)
				}
				b.ReportAllocs()
				for b.Loop() {
					m.find(r.method, r.path)
				}
			})
		}
	}
}

func BenchmarkNewMatcher(b *testing.B) {
	for _, n := range []int{10, 1_000, 10_000} {
		patterns := manyPatterns(n)
		b.Run(fmt.Sprintf("patterns=%d", n), func(b *testing.B) {
			for b.Loop() {
				mustMatcher(b, patterns...)
			}
		})
	}
}
