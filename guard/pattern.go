package guard

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxPatternBytes = 512
	maxSegments     = 32 // of a pattern
)

// A pattern is a parsed pattern; see matcher for the language.
type pattern struct {
	kind     patternKind
	method   string           // "" for all
	segments []patternSegment // of a path, without the one of prefix
	tail     tail
	prefix   string // of the segment after segments, or of a name; for the tail exact, the whole name
}

type patternKind uint8

const (
	anyRequest patternKind = iota + 1 // *
	aPath                             // with a leading slash
	aName                             // a method of JSON-RPC
)

// tail is what may follow the segments of a path, or the text of a name.
type tail uint8

const (
	exact  tail = iota // nothing
	rest               // /*: any number of segments
	prefix             // text*: a segment that begins with the text, and then any number of segments
)

// A patternSegment is a literal or {name}.
type patternSegment struct {
	literal string
	name    string
}

func (s patternSegment) isWildcard() bool { return s.literal == "" }

// parsePattern returns a pattern, or what is wrong with it.
func parsePattern(text string) (p pattern, problem string) {
	if problem := checkCharacters(text); problem != "" {
		return p, problem
	}
	method, target, hasMethod := strings.Cut(text, " ")
	if !hasMethod {
		method, target = "", text
	}
	switch {
	case hasMethod && !isMethod(method):
		return p, fmt.Sprintf("has the method %q: a method is written in capitals, such as GET, and followed by one space", method)
	case strings.Contains(target, " "):
		return p, "has a space in its path, or more than one after its method"
	case hasMethod && !strings.HasPrefix(target, "/"):
		return p, fmt.Sprintf("has a method before %q: only a path, which begins with a slash, can have one", target)
	case target == "*":
		return pattern{kind: anyRequest}, ""
	case target[0] == '/':
		return parsePath(method, target)
	}
	return parseName(target)
}

func checkCharacters(text string) (problem string) {
	switch {
	case text == "":
		return "is empty"
	case len(text) > maxPatternBytes:
		return fmt.Sprintf("has %d bytes: at most %d are possible", len(text), maxPatternBytes)
	case !utf8.ValidString(text):
		return "is not UTF-8"
	}
	for i, r := range text {
		switch {
		case !unicode.IsPrint(r):
			return fmt.Sprintf("has the character %q, which cannot be printed", r)
		case r == '?' || r == '#':
			return fmt.Sprintf("has %q: a pattern is compared with the path, without the query", r)
		case r == '%' && isEncoded(text[i:]):
			return fmt.Sprintf("has the encoded character %s: write the character itself, because paths are compared decoded", text[i:i+3])
		}
	}
	return ""
}

func isEncoded(s string) bool {
	isHex := func(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f' }
	return len(s) >= 3 && isHex(s[1]) && isHex(s[2])
}

func isMethod(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return s != ""
}

func parseName(text string) (p pattern, problem string) {
	p = pattern{kind: aName, prefix: text}
	if before, ok := strings.CutSuffix(text, "*"); ok {
		p.tail, p.prefix = prefix, before
	}
	switch {
	case strings.Contains(text, "/"):
		return p, "has a slash, but not at its beginning: a path begins with one"
	case strings.ContainsAny(text, "{}"):
		return p, "has a brace: {name} stands for a segment of a path, and a path begins with a slash"
	case strings.Contains(p.prefix, "*"):
		return p, starProblem
	}
	return p, ""
}

const starProblem = "has a * that is not at its end: write {name} for one segment"

func parsePath(method, text string) (p pattern, problem string) {
	p = pattern{kind: aPath, method: method}
	if text == "/" {
		return p, ""
	}
	segments := strings.Split(text[1:], "/")
	if len(segments) > maxSegments {
		return p, fmt.Sprintf("has %d segments: at most %d are possible", len(segments), maxSegments)
	}
	for i, s := range segments {
		if problem := p.addSegment(s, i == len(segments)-1); problem != "" {
			return p, problem
		}
	}
	return p, ""
}

// addSegment parses the next segment of a path.
func (p *pattern) addSegment(s string, last bool) (problem string) {
	before, star := strings.CutSuffix(s, "*")
	switch {
	case star && !last, strings.Contains(before, "*"):
		return starProblem
	case s == "" && last:
		return "ends with a slash: write /* for everything below, and no slash for the path itself"
	case s == "":
		return "has an empty segment: paths are compared without them"
	case s == "." || s == "..":
		return fmt.Sprintf("has the segment %q: paths are compared without it", s)
	case s == "*":
		p.tail = rest
	case strings.ContainsAny(s, "{}"):
		return p.addWildcard(s, last)
	case star:
		p.tail, p.prefix = prefix, before
	default:
		p.segments = append(p.segments, patternSegment{literal: s})
	}
	return ""
}

func (p *pattern) addWildcard(s string, last bool) (problem string) {
	inner, opened := strings.CutPrefix(s, "{")
	inner, closed := strings.CutSuffix(inner, "}")
	if !opened || !closed || strings.ContainsAny(inner, "{}") {
		return fmt.Sprintf("has the segment %q: a segment is either {name} as a whole or has no braces", s)
	}
	name, dots := strings.CutSuffix(inner, "...")
	switch {
	case !isIdentifier(name):
		return fmt.Sprintf("has the wildcard %q: its name must be letters, digits and _, and not begin with a digit", s)
	case dots && !last:
		return fmt.Sprintf("has %q before its end", s)
	case dots:
		p.tail = rest
	}
	if p.hasName(name) {
		return fmt.Sprintf("has the wildcard name %q twice", name)
	}
	if !dots {
		p.segments = append(p.segments, patternSegment{name: name})
	}
	return ""
}

func isIdentifier(s string) bool {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r)) {
			return false
		}
	}
	return s != ""
}

func (p *pattern) hasName(name string) bool {
	return slices.ContainsFunc(p.segments, func(s patternSegment) bool { return s.name == name })
}

// isLiteral says that the pattern has no wildcards.
func (p *pattern) isLiteral() bool {
	return p.kind != anyRequest && p.tail == exact && !slices.ContainsFunc(p.segments, patternSegment.isWildcard)
}

// head returns the literal segments before the first wildcard.
func (p *pattern) head() []patternSegment {
	if i := slices.IndexFunc(p.segments, patternSegment.isWildcard); i >= 0 {
		return p.segments[:i]
	}
	return p.segments
}

// key returns the pattern with all names left out, which is the same for those that match the same
// requests.
func (p *pattern) key() string {
	text := p.text()
	if p.method != "" {
		return p.method + " " + text
	}
	return text
}

// text returns the pattern without its method and names.
func (p *pattern) text() string {
	var b strings.Builder
	for _, s := range p.segments {
		b.WriteByte('/')
		if s.isWildcard() {
			b.WriteString("{}")
		}
		b.WriteString(s.literal)
	}
	if p.kind == aPath && (p.tail != exact || len(p.segments) == 0) {
		b.WriteByte('/')
	}
	b.WriteString(p.prefix)
	if p.tail != exact || p.kind == anyRequest {
		b.WriteByte('*')
	}
	return b.String()
}

// A relation says how the requests that a matches relate to those that b matches. It is found for each part
// of a request: the relation of the whole is the conjunction.
type relation struct {
	overlap  bool // they have some in common
	within   bool // all of a's are b's
	contains bool // all of b's are a's
}

var (
	disjoint = relation{}
	same     = relation{true, true, true}
	within   = relation{overlap: true, within: true}
	contains = relation{overlap: true, contains: true}
	crossing = relation{overlap: true}
)

func (r relation) and(o relation) relation {
	return relation{r.overlap && o.overlap, r.within && o.within, r.contains && o.contains}
}

// contradicts says that some requests match both patterns and neither is more specific. The patterns must
// have different keys.
func (p *pattern) contradicts(o *pattern) bool {
	r := p.compare(o)
	return r.overlap && !r.within && !r.contains
}

func (p *pattern) compare(o *pattern) relation {
	switch {
	case p.kind == anyRequest && o.kind == anyRequest:
		return same
	case o.kind == anyRequest:
		return within
	case p.kind == anyRequest:
		return contains
	case p.kind != o.kind:
		return disjoint
	case p.kind == aName:
		return compareTails(p, o)
	}
	r := comparePaths(p, o)
	if !r.overlap {
		return r
	}
	return r.and(compareMethods(p.method, o.method))
}

func compareMethods(a, b string) relation {
	switch {
	case a == b:
		return same
	case b == "" || b == "GET" && a == "HEAD":
		return within
	case a == "" || a == "GET" && b == "HEAD":
		return contains
	}
	return disjoint
}

func comparePaths(a, b *pattern) relation {
	r := same
	common := min(len(a.segments), len(b.segments))
	for i := range common {
		if r = r.and(compareSegments(a.segments[i], b.segments[i])); !r.overlap {
			return r
		}
	}
	switch {
	case len(a.segments) > common:
		return r.and(compareToTail(a, b))
	case len(b.segments) > common:
		o := compareToTail(b, a)
		return r.and(relation{o.overlap, o.contains, o.within})
	}
	return r.and(compareTails(a, b))
}

func compareSegments(a, b patternSegment) relation {
	switch {
	case a.literal == b.literal:
		return same
	case b.isWildcard():
		return within
	case a.isWildcard():
		return contains
	}
	return disjoint
}

// compareTails compares what follows equally many segments.
func compareTails(a, b *pattern) relation {
	switch {
	case a.kind == aName && a.tail == exact && b.tail == prefix && strings.HasPrefix(a.prefix, b.prefix):
		return within
	case a.kind == aName && b.tail == exact && a.tail == prefix && strings.HasPrefix(b.prefix, a.prefix):
		return contains
	case a.tail == b.tail && a.prefix == b.prefix:
		return same
	case b.tail == rest:
		return within
	case a.tail == rest:
		return contains
	case a.tail == prefix && b.tail == prefix && strings.HasPrefix(a.prefix, b.prefix):
		return within
	case a.tail == prefix && b.tail == prefix && strings.HasPrefix(b.prefix, a.prefix):
		return contains
	}
	return disjoint
}

// compareToTail compares what a has from its segment len(b.segments) on with the tail of b.
func compareToTail(a, b *pattern) relation {
	next := a.segments[len(b.segments)]
	switch {
	case b.tail == exact:
		return disjoint
	case b.tail == rest:
		return within
	case !next.isWildcard() && strings.HasPrefix(next.literal, b.prefix):
		return within
	case !next.isWildcard():
		return disjoint
	case a.tail == rest && len(a.segments) == len(b.segments)+1: // /{x}/* and /text*
		return contains
	}
	return crossing
}

// common returns a request that matches both patterns, which must be paths that overlap.
func (p *pattern) common(o *pattern) string {
	long, short := p, o
	if len(long.segments) < len(short.segments) {
		long, short = short, long
	}
	var b strings.Builder
	if r := compareMethods(p.method, o.method); r.within {
		b.WriteString(p.method)
	} else {
		b.WriteString(o.method)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	for i, s := range long.segments {
		text := s.literal
		if s.isWildcard() {
			text = short.example(i, s.name)
		}
		b.WriteByte('/')
		b.WriteString(text)
	}
	end := len(long.segments) // if both have a prefix there, the greater string is the longer prefix
	if last := max(long.tailPrefix(end), short.tailPrefix(end)); last != "" || len(long.segments) == 0 {
		b.WriteByte('/')
		b.WriteString(last)
	}
	return b.String()
}

// example returns a text that segment i of the pattern matches: the given one, if the pattern has {name} there or a
// rest.
func (p *pattern) example(i int, text string) string {
	if i < len(p.segments) && !p.segments[i].isWildcard() {
		return p.segments[i].literal
	}
	if s := p.tailPrefix(i); s != "" {
		return s
	}
	return text
}

// tailPrefix returns what segment i begins with if it is the first of the tail.
func (p *pattern) tailPrefix(i int) string {
	if i == len(p.segments) && p.tail == prefix {
		return p.prefix
	}
	return ""
}
