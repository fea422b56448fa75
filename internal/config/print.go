package config

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/secret"
)

// Format is how a configuration is printed.
type Format uint8

// The formats.
const (
	YAML Format = iota // a file that says the same, with the source of each value behind it
	JSON               // {"settings": [{"path", "value", "source"}]}
)

// Print writes what is in force, and where each value comes from. Secrets are masked, so
// only a configuration without any can be loaded again from it.
func (c *Config) Print(w io.Writer, format Format) error {
	if format == JSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(map[string]any{"settings": c.server.Live.Effective})
	}
	p := &printer{sources: true}
	p.mapping(c.tree, "")
	return p.write(w)
}

// printer makes YAML of a tree.
type printer struct {
	sources bool // put the source behind each value
	reveal  bool // show secrets, for tests
	lines   []printed
}

// printed is a line and its source.
type printed struct{ text, source string }

// write aligns the sources of lines that follow each other.
func (p *printer) write(w io.Writer) error {
	const most = 60
	width := 0
	for _, l := range p.lines {
		if n := len([]rune(l.text)); n <= most {
			width = max(width, n)
		}
	}
	var b strings.Builder
	for _, l := range p.lines {
		if l.source == "" || !p.sources {
			b.WriteString(l.text + "\n")
			continue
		}
		fmt.Fprintf(&b, "%-*s  # %s\n", width, l.text, strings.Map(oneColumn, l.source))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (p *printer) line(text, source string) { p.lines = append(p.lines, printed{text, source}) }

// mapping prints the pairs of n, each on a line that begins with indent.
func (p *printer) mapping(n *node, indent string) {
	for _, pair := range n.pairs {
		p.value(pair.value, indent+quote(pair.key, false)+":", indent+"  ")
	}
}

// value prints n after begin, and what is in it on further lines.
func (p *printer) value(n *node, begin, indent string) {
	switch {
	case n.kind == mapping && len(n.pairs) > 0:
		p.line(begin, "")
		p.mapping(n, indent)
	case n.kind == mapping:
		p.line(begin+" {}", n.at.String())
	case n.kind == sequence && len(n.items) > 0:
		p.line(begin, "")
		for _, item := range n.items {
			p.item(item, indent)
		}
	case n.kind == sequence:
		p.line(begin+" []", n.at.String())
	default:
		p.line(begin+" "+p.scalar(n), n.at.String())
	}
}

// item prints an element of a list. A mapping begins on the line of its dash.
func (p *printer) item(n *node, indent string) {
	if n.kind != mapping || len(n.pairs) == 0 {
		p.value(n, indent+"-", indent+"  ")
		return
	}
	first := len(p.lines)
	p.mapping(n, indent+"  ")
	p.lines[first].text = indent + "- " + p.lines[first].text[len(indent)+2:]
}

func (p *printer) scalar(n *node) string {
	if n.masked && !p.reveal {
		return quote(secret.Mask, true)
	}
	return quote(n.text, n.quoted)
}

// plain are texts that mean the same with and without quotes.
var plain = regexp.MustCompile(`^[A-Za-z0-9_/][A-Za-z0-9_./%+-]*(:[A-Za-z0-9_./%+-]+)*$`)

// quote returns a text as YAML has it, in quotes if it must or may be. YAML has all escapes of Go.
func quote(text string, quoted bool) string {
	if !quoted && plain.MatchString(text) && !strings.EqualFold(text, "null") {
		return text
	}
	return strconv.Quote(text)
}
