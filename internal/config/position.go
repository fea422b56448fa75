package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weirlimit/weir/secret"
)

// text is a file that problems are shown in. What must not be shown of it is noted
// while it is read.
type text struct {
	lines    []string
	masks    []place
	comments map[int]int // the columns where they begin, by line
	broken   bool        // it could not be parsed, so it is unknown which values are secret
}

func newText(data string) *text {
	return &text{lines: strings.Split(data, "\n"), comments: map[int]int{}}
}

// mask keeps the values in n from being shown, and the keys, too, if n is where a single
// value should be.
func (t *text) mask(n *node, keys bool) {
	if n.kind == scalar {
		n.masked = true
		t.masks = append(t.masks, n.at)
	}
	for _, item := range n.items {
		t.mask(item, keys)
	}
	for _, p := range n.pairs {
		if keys {
			t.masks = append(t.masks, p.at)
		}
		t.mask(p.value, keys)
	}
}

// maxWidth is how much of a long line is shown.
const maxWidth = 100

// show returns the line of a place, with a mark under it:
//
//	12 |       - {rate: 0, per: 1s}
//	   |                ^
func (t *text) show(at place) string {
	if at.line < 1 || at.line > len(t.lines) {
		return ""
	}
	line, column := t.masked(at.line, max(1, at.column))
	line = strings.Map(oneColumn, line)
	if runes := []rune(line); len(runes) > maxWidth {
		from := min(max(0, column-maxWidth/2), len(runes)-maxWidth)
		line, column = "…"+string(runes[from:from+maxWidth]), column-from+1
	}
	number := fmt.Sprintf("%4d", at.line)
	return fmt.Sprintf("%s | %s\n%*s | %*s", number, line, len(number), "", column, "^")
}

// oneColumn replaces what would be wider or narrower than one column, or would have an
// effect on a terminal.
func oneColumn(r rune) rune {
	switch {
	case r == '\t':
		return ' '
	case r < ' ', r >= 0x7f && r < 0xa0, r == utf8.RuneError, r >= 0x200b && r <= 0x206f, r == 0xfeff:
		return '�'
	}
	return r
}

// masked returns a line without its secrets and its comment, and where column is in it then.
func (t *text) masked(number, column int) (string, int) {
	line := t.lines[number-1]
	if t.broken && t.mayHaveSecret(number) {
		return hideValue(line), min(column, utf8.RuneCountInString(hideValue(line))+1)
	}
	runes := []rune(line)
	if c := t.comments[number]; c > 0 && c <= len(runes) {
		runes = []rune(strings.TrimRight(string(runes[:c-1]), " \t"))
	}
	var spans [][2]int
	for _, m := range t.masks {
		if number < m.line || number > m.line+m.lines {
			continue
		}
		from, to := 0, len(runes)
		if number == m.line {
			from = min(max(0, m.column-1), len(runes))
		}
		if m.lines == 0 {
			to = min(from+m.width, len(runes))
		}
		spans = append(spans, [2]int{from, to})
	}
	return cut(runes, spans, column)
}

// cut replaces spans by the mask.
func cut(runes []rune, spans [][2]int, column int) (string, int) {
	slices.SortFunc(spans, func(a, b [2]int) int { return a[0] - b[0] })
	var b strings.Builder
	end, marked := 0, column
	for _, s := range spans {
		s[0] = max(s[0], end)
		if s[1] <= s[0] {
			continue
		}
		b.WriteString(string(runes[end:s[0]]) + secret.Mask)
		end = s[1]
		switch grown := len(secret.Mask) - (s[1] - s[0]); {
		case column-1 >= s[1]:
			marked += grown
		case column-1 > s[0]:
			marked = utf8.RuneCountInString(b.String()) - len(secret.Mask) + 1
		}
	}
	b.WriteString(string(runes[end:]))
	return b.String(), marked
}

// secretWords are in the names of fields that have secrets in or below them.
var secretWords = regexp.MustCompile(`(?i)token|password|secret|client|header|addr|endpoint`)

// mayHaveSecret says whether a line of a file that cannot be read may have a secret in
// it: unless it is in a section in which there are none, or unless a name says so.
func (t *text) mayHaveSecret(number int) bool {
	for i := number - 1; i >= 0; i-- {
		line := t.lines[i]
		if secretWords.MatchString(line) {
			return true
		}
		if line != "" && !strings.ContainsRune(" \t#-", rune(line[0])) {
			section, _, _ := strings.Cut(line, ":")
			return !slices.Contains(harmless, section)
		}
	}
	return false
}

// harmless are the sections without secrets.
var harmless = func() (names []string) {
	for _, f := range fieldsOf(reflect.TypeFor[File]()) {
		if !mayHide(f.typ) {
			names = append(names, f.name)
		}
	}
	return names
}()

// hideValue leaves the key of a line.
func hideValue(line string) string {
	key := regexp.MustCompile(`^[ \t-]*([A-Za-z_]{1,24}:)?`).FindString(line)
	if strings.TrimSpace(line[len(key):]) == "" {
		return line
	}
	return strings.TrimRight(key, " ") + " " + secret.Mask
}
