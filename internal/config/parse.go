package config

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// What a file may be at most. The parser takes a time that grows with the square of the
// keys of one mapping: 20,000 of them take seconds.
const (
	maxBytes = 1 << 20
	maxDepth = 32
	maxKeys  = 20_000 // of one mapping
)

// plainText returns a file's text without what editors on other systems put into it. The
// parser would count some of their lines twice. What is too large stays so: only its
// beginning was read.
func plainText(data []byte) string {
	if len(data) > maxBytes {
		return string(data)
	}
	return strings.ReplaceAll(strings.TrimPrefix(string(data), "\ufeff"), "\r\n", "\n")
}

// reader makes a tree of YAML.
type reader struct {
	*report
	name string
}

// parseYAML returns the tree of a file, which is of kind null if there is nothing in it. It
// returns nil if it cannot be read; the report tells why.
func parseYAML(name, data string, r *report) *node {
	in := &reader{report: r, name: name}
	n := in.read(data, place{source: name, line: 1, column: 1})
	r.text.broken = n == nil
	return n
}

// read returns the tree, nil if there is none.
func (in *reader) read(data string, top place) *node {
	switch {
	case len(data) > maxBytes:
		in.complain(top, nil, "the file has more than %d bytes, which is the most", maxBytes)
		return nil
	case !utf8.ValidString(data):
		in.complain(in.invalidAt(data), nil, "is not UTF-8: save the file in that encoding")
		return nil
	}
	tokens := joinColons(lexer.Tokenize(data))
	for _, t := range tokens {
		if t.Type == token.CommentType { // in which a secret may have been left
			in.text.comments[t.Position.Line] = t.Position.Column
		}
	}
	if !in.isModest(tokens) {
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		in.syntax(err, top)
		return nil
	}
	return in.document(file, top)
}

// joinColons puts together the texts with a colon in them, such as 127.0.0.1:6379, that the
// lexer takes apart in a list inside a { }: there it sees a mapping without a space after its colon.
func joinColons(tokens token.Tokens) token.Tokens {
	var out token.Tokens
	var open []token.Type // the brackets around a token
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			open = append(open, t.Type)
		case token.MappingEndType, token.SequenceEndType:
			open = open[:max(0, len(open)-1)]
		case token.MappingValueType:
			if len(open) < 2 || open[len(open)-1] != token.SequenceStartType || i+1 == len(tokens) || !follows(t, tokens[i+1]) {
				break
			}
			last := out[len(out)-1]
			switch {
			case follows(last, t):
				out = out[:len(out)-1]
				t = token.String(last.Value+":"+tokens[i+1].Value, last.Origin+":"+tokens[i+1].Origin, last.Position)
				i++
			case last.Type == token.SequenceStartType || last.Type == token.CollectEntryType:
				t = token.String(":"+tokens[i+1].Value, t.Origin+tokens[i+1].Origin, t.Position)
				i++
			}
		}
		out.Add(t)
	}
	return out
}

// follows says whether b begins where a ends, and neither is in quotes or a bracket.
func follows(a, b *token.Token) bool {
	isText := func(t *token.Token) bool {
		return t.CharacterType == token.CharacterTypeMiscellaneous || t.Type == token.MappingValueType
	}
	return isText(a) && isText(b) && a.Position.Line == b.Position.Line && a.Position.Column+utf8.RuneCountInString(a.Value) == b.Position.Column
}

// document returns the tree of the only document.
func (in *reader) document(file *ast.File, top place) *node {
	var body ast.Node
	for _, d := range file.Docs {
		switch {
		case d.Body == nil:
		case body != nil:
			in.complain(in.place(firstToken(d.Body)), nil, "a second document begins here: a configuration is one")
			return nil
		default:
			body = d.Body
		}
	}
	if body == nil {
		return &node{at: top}
	}
	return in.node(body, nil)
}

// firstToken returns where a node begins; the parser says of a mapping where its first
// colon is.
func firstToken(n ast.Node) *token.Token {
	switch n := n.(type) {
	case *ast.MappingNode:
		if len(n.Values) > 0 {
			return n.Values[0].Key.GetToken()
		}
	case *ast.MappingValueNode:
		return n.Key.GetToken()
	}
	return n.GetToken()
}

// invalidAt returns where a text stops being UTF-8.
func (in *reader) invalidAt(data string) place {
	valid := 0
	for r, size := utf8.DecodeRuneInString(data); r != utf8.RuneError || size > 1; r, size = utf8.DecodeRuneInString(data[valid:]) {
		valid += size
	}
	before := data[:valid]
	column := 1 + utf8.RuneCountInString(before[1+strings.LastIndexByte(before, '\n'):])
	return place{source: in.name, line: 1 + strings.Count(before, "\n"), column: column}
}

// isModest refuses what the parser should not see: too deep, or with too many keys.
// Anchors and aliases, with which few bytes make much, are refused here, too.
func (in *reader) isModest(tokens token.Tokens) bool {
	var blocks depth
	flow, line := 0, 0
	for _, t := range tokens {
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			in.complain(in.place(t), nil, "anchors, aliases and merge keys (& * <<) are not taken: write the value out; a text that begins with one needs quotes")
			return false
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow--
		}
		if flow == 0 && t.Type != token.CommentType && (t.Position.Line != line || t.Type == token.SequenceEntryType || t.Type == token.MappingKeyType) {
			blocks.enter(t.Position.Column, t.Type == token.SequenceEntryType)
		}
		line = t.Position.Line
		if len(blocks)+flow > maxDepth {
			in.complain(in.place(t), nil, "is more than %d levels deep", maxDepth)
			return false
		}
		if n := len(blocks); n > 0 && blocks[n-1].keys > maxKeys {
			in.complain(in.place(t), nil, "there are more than %d keys in one mapping", maxKeys)
			return false
		}
	}
	return true
}

// depth are the blocks around a token, identified by their columns.
type depth []block

type block struct {
	column int
	keys   int // lines that begin there, which are keys unless they are entries of a list
}

// enter notes that something begins in a column.
func (d *depth) enter(column int, isEntry bool) {
	for len(*d) > 0 && (*d)[len(*d)-1].column > column {
		*d = (*d)[:len(*d)-1]
	}
	if len(*d) == 0 || (*d)[len(*d)-1].column < column {
		*d = append(*d, block{column: column})
	}
	if !isEntry {
		(*d)[len(*d)-1].keys++
	}
}

// syntax notes what the parser says. It quotes no text of the file: that may be a secret.
func (in *reader) syntax(err error, top place) {
	bad, ok := errors.AsType[yaml.Error](err)
	if !ok || bad.GetToken() == nil {
		in.complain(top, nil, "is not YAML")
		return
	}
	message := bad.GetMessage()
	switch {
	case strings.Contains(message, "tab") || strings.Contains(bad.GetToken().Origin, "\t"):
		message = "a tab does not indent in YAML: use spaces"
	case strings.ContainsAny(message, "\"`\n") || len(message) > 100:
		message = "this is not YAML: look for a missing quote, bracket or colon, here or just before"
	default:
		message = "this is not YAML: " + message
	}
	in.complain(in.place(bad.GetToken()), nil, "%s", message)
}

// place returns where a token is.
func (in *reader) place(t *token.Token) place {
	if t == nil || t.Position == nil {
		return place{source: in.name, line: 1, column: 1}
	}
	text := strings.Trim(t.Origin, " \t\r\n")
	return place{
		source: in.name, line: max(1, t.Position.Line), column: max(1, t.Position.Column),
		width: utf8.RuneCountInString(text), lines: strings.Count(text, "\n"),
	}
}

// node returns a tree, nil if it has what cannot be taken.
func (in *reader) node(n ast.Node, at path) *node {
	switch n := n.(type) {
	case *ast.MappingNode:
		return in.mapping(n.Values, in.place(firstToken(n)), at)
	case *ast.MappingValueNode:
		return in.mapping([]*ast.MappingValueNode{n}, in.place(firstToken(n)), at)
	case *ast.SequenceNode:
		return in.sequence(n, at)
	case *ast.NullNode:
		return &node{kind: null, at: in.place(n.GetToken())}
	case *ast.LiteralNode:
		where := in.place(n.Start)
		where.lines = strings.Count(strings.TrimRight(n.Value.GetToken().Origin, " \t\r\n"), "\n") + 1
		return &node{kind: scalar, text: n.Value.Value, quoted: true, at: where}
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		t := n.GetToken()
		quoted := t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType
		return &node{kind: scalar, text: t.Value, quoted: quoted, at: in.place(t)}
	case *ast.TagNode:
		in.complain(in.place(n.GetToken()), at, "tags such as !!str are not taken: the field says what it is")
		in.hideLine(n)
		in.hide(n.Value, at)
	default:
		in.hideLine(n)
		in.complain(in.place(n.GetToken()), at, "is not taken: write mappings, lists and single values only")
	}
	return nil
}

func (in *reader) mapping(values []*ast.MappingValueNode, where place, at path) *node {
	n := newMapping(where)
	first := map[string]place{}
	for _, v := range values {
		key, ok := in.key(v.Key, at)
		if !ok {
			in.hideLine(v.Key)
			in.hide(v.Value, at)
			continue
		}
		keyAt := in.place(v.Key.GetToken())
		if before, twice := first[key]; twice {
			in.complain(keyAt, at.key(key), "is there twice, first on line %d: remove one", before.line)
			if !at.isHarmless() {
				in.hide(v.Value, at.key(key))
			}
			continue
		}
		first[key] = keyAt
		if value := in.node(v.Value, at.key(key)); value != nil {
			n.pairs = append(n.pairs, pair{key, keyAt, value})
		}
	}
	return n
}

// hide masks values that later steps cannot recognize as secrets.
func (in *reader) hide(n ast.Node, at path) {
	if n == nil {
		return
	}
	if value := in.node(n, at); value != nil {
		in.text.mask(value, false)
	}
}

// hideLine keeps a node and what follows on its line from being shown.
func (in *reader) hideLine(n ast.Node) {
	at := in.place(n.GetToken())
	at.width, at.lines = maxBytes, 0
	in.text.masks = append(in.text.masks, at)
}

// key returns the text of a key.
func (in *reader) key(k ast.MapKeyNode, at path) (string, bool) {
	switch k.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode, *ast.NullNode:
		return k.GetToken().Value, true
	}
	in.complain(in.place(k.GetToken()), at, "a key must be a plain text")
	return "", false
}

func (in *reader) sequence(s *ast.SequenceNode, at path) *node {
	n := &node{kind: sequence, at: in.place(s.GetToken())}
	for i, v := range s.Values {
		if item := in.node(v, at.item(i)); item != nil {
			n.items = append(n.items, item)
		}
	}
	return n
}
