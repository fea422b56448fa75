package resp

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// model is a slow and obvious parser of a whole stream: the commands in it and, if it
// breaks the protocol, how. What is left over of a command is not reported.
func model(in []byte, l Limits) (commands [][]string, problem string) {
	l = l.normal()
	for len(in) > 0 {
		args, rest, problem := modelCommand(string(in), l)
		if problem != "" || rest == "…" {
			return commands, problem
		}
		if len(args) > 0 {
			commands = append(commands, args)
		}
		in = []byte(rest)
	}
	return commands, ""
}

// modelCommand takes one command off a stream. The rest is … if it is not there whole.
func modelCommand(in string, l Limits) (args []string, rest, problem string) {
	if in[0] != '*' {
		line, rest, ok := strings.Cut(in, "\n")
		switch {
		case len(line) > l.Inline:
			return nil, "", "too big inline request"
		case !ok:
			return nil, "…", ""
		}
		args, problem := modelWords(strings.TrimSuffix(line, "\r"), l)
		return args, rest, problem
	}
	count, rest, problem := modelLength(in, "too big mbulk count string", "invalid multibulk length", l.Args)
	for range count {
		if problem != "" || rest == "…" || rest == "" {
			break
		}
		if rest[0] != '$' {
			return nil, "", "expected '$', got '" + printable(rest[0]) + "'"
		}
		var n int
		if n, rest, problem = modelLength(rest, "too big bulk count string", "invalid bulk length", l.Bulk); problem != "" || rest == "…" {
			break
		}
		switch {
		case len(in)-len(rest)+n+2 > l.Command:
			return nil, "", "too big command"
		case len(rest) < n+2:
			return nil, "…", ""
		case rest[n:n+2] != "\r\n":
			return nil, "", "expected CRLF after a bulk"
		}
		args, rest = append(args, rest[:n]), rest[n+2:]
	}
	if problem == "" && len(args) < count {
		return nil, "…", ""
	}
	return args, rest, problem
}

func modelLength(in, tooBig, invalid string, most int) (n int, rest, problem string) {
	line, rest, ok := strings.Cut(in, "\n")
	switch {
	case len(line) > maxLength:
		return 0, "", tooBig
	case !ok:
		return 0, "…", ""
	}
	digits, ok := strings.CutSuffix(line[1:], "\r")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 0 || n > most || strconv.Itoa(n) != digits {
		return 0, "", invalid
	}
	return n, rest, ""
}

// modelWords splits a line. A quote opens a quoted part anywhere in a word, and nothing
// but a space may follow the one that closes it.
func modelWords(line string, l Limits) (words []string, problem string) {
	const spaces = " \t\n\v\f\r\x00"
	for {
		if line = strings.TrimLeft(line, spaces); line == "" {
			return words, ""
		}
		if len(words) == l.Args {
			return nil, "too many arguments"
		}
		end := strings.IndexAny(line, spaces+`"'`)
		if end < 0 {
			return append(words, line), ""
		}
		word := line[:end]
		if quote := line[end]; quote == '"' || quote == '\'' {
			text, rest, ok := modelQuoted(line[end+1:], quote)
			if !ok || rest != "" && !strings.ContainsRune(spaces, rune(rest[0])) {
				return nil, "unbalanced quotes in request"
			}
			word, line, end = word+text, rest, 0
		}
		words, line = append(words, word), line[end:]
	}
}

func modelQuoted(in string, quote byte) (text, rest string, ok bool) {
	for in != "" {
		switch {
		case in[0] == quote:
			return text, in[1:], true
		case quote == '\'' && strings.HasPrefix(in, `\'`):
			text, in = text+"'", in[2:]
		case quote == '"' && in[0] == '\\' && len(in) > 1:
			if b, err := strconv.ParseUint(in[2:min(4, len(in))], 16, 8); err == nil && in[1] == 'x' && len(in) >= 4 {
				text, in = text+string([]byte{byte(b)}), in[4:]
				continue
			}
			known := strings.NewReplacer("n", "\n", "r", "\r", "t", "\t", "b", "\b", "a", "\a")
			text, in = text+known.Replace(in[1:2]), in[2:]
		default:
			text, in = text+in[:1], in[1:]
		}
	}
	return "", "", false
}

// pieces delivers a stream in pieces of at most so many bytes.
type pieces struct {
	rest []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.size)], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// readAll returns what a Reader makes of a stream.
func readAll(src io.Reader, l Limits) (commands [][]string, problem string) {
	r := NewReader(src, l)
	for {
		args, err := r.Read()
		if bad, ok := err.(*ProtocolError); ok {
			return commands, bad.Problem
		}
		if err != nil {
			return commands, ""
		}
		var texts []string
		for _, a := range args {
			texts = append(texts, string(a))
		}
		commands = append(commands, texts)
	}
}

// command returns a multibulk command.
func command(args ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.Bytes()
}
