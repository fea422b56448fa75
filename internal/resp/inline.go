package resp

import "bytes"

// inline takes a command that is one line, as people type it. With more there was only an
// empty line, and there may be another command.
func (r *Reader) inline() (args [][]byte, more bool, err error) {
	i := bytes.IndexByte(r.buf[r.start+min(r.scanned, r.end-r.start):r.end], '\n')
	if i < 0 {
		if r.scanned = r.end - r.start; r.scanned > r.limits.Inline {
			err = &ProtocolError{"too big inline request"}
		}
		return nil, false, err
	}
	length := r.scanned + i
	r.scanned = 0
	if length > r.limits.Inline {
		return nil, false, &ProtocolError{"too big inline request"}
	}
	line := bytes.TrimSuffix(r.buf[r.start:r.start+length], []byte{'\r'})
	r.at = r.start + length + 1
	if err := r.split(line); err != nil {
		return nil, false, err
	}
	if len(r.spans) == 0 {
		r.start = r.at
		return nil, true, nil
	}
	return r.take(), false, nil
}

// split finds the words of a line. Quotes and escapes are resolved where they stand, which
// never takes more room.
//
//	"in double quotes \n \r \t \b \a and \x41 are escapes, and \" is a quote"
//	'in single quotes only \' is'
func (r *Reader) split(line []byte) error {
	for at := 0; ; {
		for at < len(line) && isSpace(line[at]) {
			at++
		}
		if at == len(line) {
			return nil
		}
		if len(r.spans) == r.limits.Args {
			return &ProtocolError{"too many arguments"}
		}
		w := word{line: line, at: at, to: at}
		if !w.read() {
			return &ProtocolError{"unbalanced quotes in request"}
		}
		r.spans = append(r.spans, span{at, w.to}) // line begins at r.start
		at = w.at
	}
}

// word is one word of a line, rewritten in place up to to.
type word struct {
	line   []byte
	at, to int
}

func (w *word) put(b byte) {
	w.line[w.to] = b
	w.to++
}

// read goes to the word's end. It returns false if a quote is not closed, or if something
// follows its closing quote.
func (w *word) read() bool {
	for w.at < len(w.line) && !isSpace(w.line[w.at]) {
		switch b := w.line[w.at]; b {
		case '"', '\'':
			w.at++
			return w.quoted(b) && (w.at == len(w.line) || isSpace(w.line[w.at]))
		default:
			w.put(b)
			w.at++
		}
	}
	return true
}

// quoted goes behind the closing quote.
func (w *word) quoted(quote byte) bool {
	for w.at < len(w.line) {
		b := w.line[w.at]
		w.at++
		switch {
		case b == quote:
			return true
		case b == '\\' && quote == '"' && w.at < len(w.line):
			w.escape()
		case b == '\\' && w.at < len(w.line) && w.line[w.at] == '\'':
			w.put('\'')
			w.at++
		default:
			w.put(b)
		}
	}
	return false
}

// escape resolves what stands after a backslash.
func (w *word) escape() {
	if rest := w.line[w.at:]; rest[0] == 'x' && len(rest) > 2 {
		high, ok1 := hex(rest[1])
		low, ok2 := hex(rest[2])
		if ok1 && ok2 {
			w.put(high<<4 | low)
			w.at += 3
			return
		}
	}
	b := w.line[w.at]
	switch b {
	case 'n':
		b = '\n'
	case 'r':
		b = '\r'
	case 't':
		b = '\t'
	case 'b':
		b = '\b'
	case 'a':
		b = '\a'
	}
	w.put(b)
	w.at++
}

func hex(b byte) (byte, bool) {
	switch {
	case b >= '0' && b <= '9':
		return b - '0', true
	case b >= 'a' && b <= 'f':
		return b - 'a' + 10, true
	case b >= 'A' && b <= 'F':
		return b - 'A' + 10, true
	}
	return 0, false
}

func isSpace(b byte) bool { return b == ' ' || b >= '\t' && b <= '\r' || b == 0 }
