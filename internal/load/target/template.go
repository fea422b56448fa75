package target

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A template is text with variables, compiled. Appending it to a buffer that is
// large enough allocates nothing.
type template []segment

// A segment is literal text or one variable.
type segment struct {
	kind kind
	text string // of a literal
	n    int64  // of rand, zipf and cycle
}

type kind int

const (
	literal kind = iota
	seqVar
	workerVar
	randVar
	zipfVar
	cycleVar
	uuidVar
	timeVar
)

var variables = map[string]kind{
	"seq": seqVar, "worker": workerVar, "rand": randVar, "zipf": zipfVar, "cycle": cycleVar, "uuid": uuidVar, "time": timeVar,
}

const knownVariables = "known are {{seq}}, {{worker}}, {{rand N}}, {{zipf N}}, {{cycle N}}, {{uuid}} and {{time}}"

func (k kind) takesNumber() bool { return k == randVar || k == zipfVar || k == cycleVar }

// A templateError says what is wrong with a template, and shows where. Where the
// text around may be a secret, problem alone is shown.
type templateError struct {
	part    string // "{{rnd 5}}"
	problem string
}

func (e *templateError) Error() string { return fmt.Sprintf("%.40q %s", e.part, e.problem) }

// secretly leaves the part out of a template's error.
func secretly(err error) error {
	if e, ok := errors.AsType[*templateError](err); ok {
		return errors.New("a variable in the value " + e.problem)
	}
	return err
}

// parseTemplate compiles a text.
func parseTemplate(text string) (template, error) {
	var t template
	for {
		before, rest, found := strings.Cut(text, "{{")
		if before != "" {
			t = append(t, segment{kind: literal, text: before})
		}
		if !found {
			return t, nil
		}
		inside, after, closed := strings.Cut(rest, "}}")
		if !closed {
			return nil, &templateError{"{{" + firstWord(rest), "is not closed by }}"}
		}
		s, err := parseVariable(inside)
		if err != nil {
			return nil, err
		}
		t, text = append(t, s), after
	}
}

// firstWord shows where an unclosed variable is without showing all that follows.
func firstWord(s string) string {
	end := strings.IndexFunc(s, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != ' ' })
	if end >= 0 {
		s = s[:end]
	}
	return s
}

// parseVariable compiles what is between braces.
func parseVariable(inside string) (segment, error) {
	fail := func(problem string) (segment, error) {
		return segment{}, &templateError{"{{" + inside + "}}", problem}
	}
	words := strings.Fields(inside)
	if len(words) == 0 {
		return fail("is empty; " + knownVariables)
	}
	k, ok := variables[words[0]]
	switch {
	case !ok:
		return fail("is not a variable; " + knownVariables)
	case !k.takesNumber() && len(words) > 1:
		return fail("takes no number")
	case !k.takesNumber():
		return segment{kind: k}, nil
	case len(words) != 2:
		return fail("needs one number")
	}
	n, err := strconv.ParseUint(words[1], 10, 64)
	if err != nil || n == 0 || n > math.MaxInt64 {
		return fail(fmt.Sprintf("needs a whole number from 1 to %d", int64(math.MaxInt64)))
	}
	return segment{kind: k, n: int64(n)}, nil
}

// fixed returns the text of a template without variables, or false.
func (t template) fixed() (string, bool) {
	switch {
	case len(t) == 0:
		return "", true
	case len(t) == 1 && t[0].kind == literal:
		return t[0].text, true
	}
	return "", false
}

// append adds the text of one operation to b.
func (t template) append(b []byte, v *vars) []byte {
	for i := range t {
		b = t[i].append(b, v)
	}
	return b
}

// text is append for those who need a string, which for fixed templates is free.
func (t template) text(v *vars) string {
	if s, ok := t.fixed(); ok {
		return s
	}
	v.scratch = t.append(v.scratch[:0], v)
	return string(v.scratch)
}

func (s *segment) append(b []byte, v *vars) []byte {
	switch s.kind {
	case seqVar:
		return strconv.AppendInt(b, v.seq, 10)
	case workerVar:
		return strconv.AppendInt(b, v.worker, 10)
	case randVar:
		return strconv.AppendInt(b, v.random.Int64N(s.n), 10)
	case zipfVar:
		return strconv.AppendUint(b, v.zipf(s.n), 10)
	case cycleVar:
		return strconv.AppendInt(b, modulo(v.seq, s.n), 10)
	case uuidVar:
		return appendUUID(b, v.random.Uint64(), v.random.Uint64())
	case timeVar:
		return strconv.AppendInt(b, time.Now().UnixNano(), 10)
	}
	return append(b, s.text...)
}

// modulo is never negative, whatever a is.
func modulo(a, n int64) int64 {
	m := a % n
	if m < 0 {
		m += n
	}
	return m
}

// appendUUID writes 122 of 128 random bits as a UUID of version 4, see RFC 9562.
func appendUUID(b []byte, hi, lo uint64) []byte {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], hi&^0xf000|0x4000)
	binary.BigEndian.PutUint64(raw[8:], lo&^(3<<62)|2<<62)
	b = append(hex.AppendEncode(b, raw[:4]), '-')
	b = append(hex.AppendEncode(b, raw[4:6]), '-')
	b = append(hex.AppendEncode(b, raw[6:8]), '-')
	b = append(hex.AppendEncode(b, raw[8:10]), '-')
	return hex.AppendEncode(b, raw[10:])
}
