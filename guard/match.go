package guard

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

const (
	maxPatterns = 10_000
	maxSteps    = 256 // nodes that a lookup may visit
	noPattern   = -1
)

// A matcher finds the pattern that applies to an endpoint. It is immutable.
//
// # Patterns
//
//	GET /v1/users/{id}        an HTTP method and a path; GET includes HEAD, as in http.ServeMux
//	/v1/users/{id}            a path, for all methods
//	/river.Stream/GetStream   an RPC procedure, which is a path
//	eth_getLogs               a method of JSON-RPC: no slash, and never an HTTP method
//	/v1/*  /river.*  eth_*    everything that begins so
//	*                         everything
//
// {name} stands for exactly one segment. A * is allowed only at the end and stands for any rest,
// which may be empty and may have several segments: "/v1/*" matches /v1, /v1/a and /v1/a/b, and
// "/v1*" matches /v10 as well. "/v1/{rest...}" is the same as "/v1/*". "/" is the root alone.
//
// # Precedence
//
// The most specific pattern applies. A pattern is more specific than another if the requests that it
// matches are a strict subset of those that the other matches. So a literal segment has precedence over
// {name}, {name} over *, a long prefix over a short one, and a pattern with a method over the same
// path without. Two patterns that match the same requests, such as /a/{x} and /a/{y}, are refused, and
// so are two that have requests in common while neither is more specific: GET /a/* and /a/b have
// GET /a/b in common, /{x}/b and /a/{y} have /a/b.
//
// # Requests
//
// A path is matched without its empty segments and dot segments, as path.Clean would leave it: one
// endpoint has one count, whether a caller writes /v1/users, /v1/users/, //v1/users, /v1/./users or
// /v1/x/../users. The empty path is the root. A path without its leading slash has it added, because
// some servers of gRPC accept such a path (GO-2026-4762), unless it has no slash at all: then it is a
// method of JSON-RPC. Letters are compared with their case, as routers do. The path is decoded once, by
// the caller; see RequestPath for what is encoded in a segment.
//
// # Cost
//
// A pattern without wildcards is found by one lookup in a hash map. Otherwise the path's segments are
// walked down a trie: literals before prefixes before {name} before *, which is the order of
// precedence once contradictory patterns are refused. At a node with both a literal and {name} the
// walk may have to come back; patterns with which it could visit more than maxSteps nodes are
// refused. No lookup allocates, and its cost depends on the length of the path and not on the
// number of patterns. Compiling compares only patterns that begin with the same literal segments.
type matcher struct {
	literal  map[string]*leaf // the patterns without wildcards
	paths    node             // the patterns of paths, the literal ones as well
	names    prefixes         // the patterns of JSON-RPC's methods that end with *
	anything leaf             // the pattern "*"
}

// A patternError says which pattern cannot be used, and why.
type patternError struct {
	index   int // of the pattern
	problem string
}

// newMatcher compiles patterns. It returns every problem, at most one for each pattern and in the order of
// the patterns. If there are any, the matcher is nil.
func newMatcher(patterns []string) (*matcher, []patternError) {
	if len(patterns) > maxPatterns {
		return nil, []patternError{{maxPatterns, fmt.Sprintf("is one of %d patterns: at most %d are possible", len(patterns), maxPatterns)}}
	}
	parsed, problems := parsePatterns(patterns)
	problems = append(problems, findConflicts(patterns, parsed)...)
	slices.SortStableFunc(problems, func(a, b patternError) int { return cmp.Compare(a.index, b.index) })
	if len(problems) > 0 {
		return nil, problems
	}
	m := &matcher{literal: map[string]*leaf{}}
	for i := range parsed {
		m.add(&parsed[i], i)
	}
	if steps, i := m.paths.steps(); steps > maxSteps {
		return nil, []patternError{{i, fmt.Sprintf("belongs to patterns that have both {name} and literals in the same segments "+
			"too often: finding one could take %d steps, and at most %d are possible", steps, maxSteps)}}
	}
	return m, nil
}

func parsePatterns(patterns []string) (parsed []pattern, problems []patternError) {
	parsed = make([]pattern, len(patterns))
	for i, text := range patterns {
		var problem string
		if parsed[i], problem = parsePattern(text); problem != "" {
			parsed[i] = pattern{} // of no kind, so that it is compared with nothing
			problems = append(problems, patternError{i, problem})
		}
	}
	return parsed, problems
}

// findConflicts returns a problem for each pattern that contradicts an earlier one.
func findConflicts(texts []string, parsed []pattern) (problems []patternError) {
	first := make(map[string]int, len(parsed)) // by the pattern without names
	earlier := heads{at: map[string][]int{}, below: map[string][]int{}}
	for i := range parsed {
		p := &parsed[i]
		if p.kind == 0 {
			continue
		}
		key := p.key()
		if j, taken := first[key]; taken {
			problems = append(problems, patternError{i, fmt.Sprintf("matches the same requests as %q: remove one of them", texts[j])})
			continue
		}
		first[key] = i
		if p.kind != aPath {
			continue // names and * contradict nothing: one always contains the other, or they have nothing in common
		}
		if j := earlier.find(p, func(j int) bool { return p.contradicts(&parsed[j]) }); j != noPattern {
			problems = append(problems, patternError{i, fmt.Sprintf("contradicts %q: both match %q, and neither is more specific than the other; "+
				"give both a method or none, or change a path", texts[j], p.common(&parsed[j]))})
		}
		earlier.add(p, i)
	}
	return problems
}

// heads are patterns by their literal segments before the first wildcard. Two patterns have requests in
// common only if the head of one begins with that of the other.
type heads struct {
	at    map[string][]int // patterns with this head
	below map[string][]int // patterns whose head begins with this
}

func (h *heads) add(p *pattern, index int) {
	head := ""
	h.below[head] = append(h.below[head], index)
	for _, s := range p.head() {
		head += "/" + s.literal
		h.below[head] = append(h.below[head], index)
	}
	h.at[head] = append(h.at[head], index)
}

// find returns the first pattern that may have requests in common with p and for which is returns true.
func (h *heads) find(p *pattern, is func(int) bool) int {
	head := ""
	for _, s := range p.head() {
		if i := slices.IndexFunc(h.at[head], is); i >= 0 {
			return h.at[head][i]
		}
		head += "/" + s.literal
	}
	if i := slices.IndexFunc(h.below[head], is); i >= 0 {
		return h.below[head][i]
	}
	return noPattern
}

func (m *matcher) add(p *pattern, index int) {
	if p.isLiteral() {
		text := p.text()
		if m.literal[text] == nil {
			m.literal[text] = &leaf{}
		}
		m.literal[text].add(p.method, index)
	}
	switch {
	case p.kind == anyRequest:
		m.anything.add("", index)
	case p.kind == aPath:
		m.paths.add(p, index)
	case p.tail == prefix:
		m.names.add(p.prefix, "", index)
	}
}

// find returns the index of the most specific pattern that matches, -1 if none does. The path is as
// RequestPath returns it, an RPC procedure, or a method of JSON-RPC.
func (m *matcher) find(method, path string) int {
	if l := m.literal[path]; l != nil {
		if i := l.find(method); i != noPattern {
			return i
		}
	}
	if i := m.findWild(method, path); i != noPattern {
		return i
	}
	return m.anything.find(method)
}

func (m *matcher) findWild(method, path string) int {
	if path != "" && strings.IndexByte(path, '/') < 0 {
		return m.names.find(method, path)
	}
	var s segments
	s.split(path)
	return m.paths.find(method, &s, 0)
}

// segments are those of a cleaned path.
type segments struct {
	count int                 // may be more than fit below, which no pattern can tell apart
	first [maxSegments]string // the first ones
}

// split sets s to the segments of path, as path.Clean would leave them. A path cannot be above its root.
func (s *segments) split(path string) {
	for path != "" {
		var segment string
		segment, path, _ = strings.Cut(path, "/")
		switch segment {
		case "", ".":
		case "..":
			s.count = max(0, s.count-1)
		default:
			if s.count < len(s.first) {
				s.first[s.count] = segment
			}
			s.count++
		}
	}
}

// A node is where the first segments of some patterns lead.
type node struct {
	here     leaf             // patterns that end here
	rest     leaf             // patterns that end here with /*
	literals map[string]*node // by the next segment
	prefixes prefixes         // patterns that end with * in the next segment
	wildcard *node            // the next segment is {name}
	last     int              // the greatest index of the patterns that end at this node
}

func (n *node) add(p *pattern, index int) {
	for _, s := range p.segments {
		n = n.child(s)
	}
	n.last = index
	switch p.tail {
	case exact:
		n.here.add(p.method, index)
	case rest:
		n.rest.add(p.method, index)
	case prefix:
		n.prefixes.add(p.prefix, p.method, index)
	}
}

// child returns the node behind a segment, which is made if there is none.
func (n *node) child(s patternSegment) *node {
	if s.isWildcard() {
		if n.wildcard == nil {
			n.wildcard = &node{}
		}
		return n.wildcard
	}
	if n.literals == nil {
		n.literals = map[string]*node{}
	}
	if n.literals[s.literal] == nil {
		n.literals[s.literal] = &node{}
	}
	return n.literals[s.literal]
}

// find returns the first pattern, in the order of precedence, that matches the segments from i on.
func (n *node) find(method string, s *segments, i int) int {
	if i == s.count {
		if found := n.here.find(method); found != noPattern {
			return found
		}
		return n.rest.find(method)
	}
	if i < len(s.first) {
		if found := n.findNext(method, s, i); found != noPattern {
			return found
		}
	}
	return n.rest.find(method)
}

// findNext is find for the patterns that have a segment i.
func (n *node) findNext(method string, s *segments, i int) int {
	segment := s.first[i]
	if next := n.literals[segment]; next != nil {
		if found := next.find(method, s, i+1); found != noPattern {
			return found
		}
	}
	if found := n.prefixes.find(method, segment); found != noPattern {
		return found
	}
	if n.wildcard == nil {
		return noPattern
	}
	return n.wildcard.find(method, s, i+1)
}

// steps returns an upper bound of the nodes that find visits, and the index of a pattern that has part in it.
func (n *node) steps() (most, index int) {
	for _, next := range n.literals {
		if steps, i := next.steps(); steps > most || steps == most && i > index {
			most, index = steps, i
		}
	}
	if n.wildcard != nil {
		steps, i := n.wildcard.steps()
		most, index = most+steps, max(index, i)
	}
	return most + 1, max(index, n.last)
}

// prefixes are patterns with a * after some text.
type prefixes struct {
	lengths []int // of the texts, the longest first
	leaves  map[string]*leaf
}

func (p *prefixes) add(text, method string, index int) {
	if p.leaves == nil {
		p.leaves = map[string]*leaf{}
	}
	if p.leaves[text] == nil {
		p.leaves[text] = &leaf{}
		p.addLength(len(text))
	}
	p.leaves[text].add(method, index)
}

func (p *prefixes) addLength(length int) {
	at, found := slices.BinarySearchFunc(p.lengths, length, func(a, b int) int { return cmp.Compare(b, a) })
	if !found {
		p.lengths = slices.Insert(p.lengths, at, length)
	}
}

func (p *prefixes) find(method, text string) int {
	for _, length := range p.lengths {
		if length > len(text) {
			continue
		}
		if l := p.leaves[text[:length]]; l != nil {
			if found := l.find(method); found != noPattern {
				return found
			}
		}
	}
	return noPattern
}

// A leaf has the patterns that differ only by their methods.
type leaf struct {
	all     int            // one more than the index of the pattern for all methods; 0 for none
	methods map[string]int // the indexes of the others
}

func (l *leaf) add(method string, index int) {
	if method == "" {
		l.all = index + 1
		return
	}
	if l.methods == nil {
		l.methods = map[string]int{}
	}
	l.methods[method] = index
}

func (l *leaf) find(method string) int {
	if l.methods != nil {
		if i, ok := l.methods[method]; ok {
			return i
		}
		if method == "HEAD" {
			if i, ok := l.methods["GET"]; ok {
				return i
			}
		}
	}
	return l.all - 1
}

// RequestPath returns the Request.Path of a URL. It is u.Path, unless a segment has an encoded slash
// or is an encoded dot segment: those stay encoded (%2F, %2E), because routers such as http.ServeMux
// take them for part of the segment. So /files/a%2Fb is counted as an endpoint of /files/{name}.
func RequestPath(u *url.URL) string {
	if u.RawPath == "" { // nothing is encoded that need not be
		return u.Path
	}
	raw := strings.Split(u.EscapedPath(), "/")
	changed := false
	for i, segment := range raw {
		decoded, err := url.PathUnescape(segment)
		if err != nil {
			return u.Path
		}
		kept := keepEncoded(segment, decoded)
		changed = changed || kept != decoded
		raw[i] = kept
	}
	if !changed {
		return u.Path
	}
	return strings.Join(raw, "/")
}

// keepEncoded returns the decoded segment with those characters encoded that would change the segments
// of the path.
func keepEncoded(segment, decoded string) string {
	if segment != decoded && (decoded == "." || decoded == "..") {
		return strings.ReplaceAll(decoded, ".", "%2E")
	}
	return strings.ReplaceAll(decoded, "/", "%2F")
}
