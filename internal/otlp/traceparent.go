package otlp

import (
	"encoding/hex"
	"errors"
)

// TraceID names a trace, SpanID a span in it. All zeros is none.
type (
	TraceID [16]byte
	SpanID  [8]byte
)

// Traceparent says which span of which trace a request comes from.
type Traceparent struct {
	Trace   TraceID
	Span    SpanID
	Sampled bool // the caller traces this request
}

// ErrTraceparent is the error of a header that is not a traceparent.
var ErrTraceparent = errors.New("otlp: not a traceparent")

// Where the fields of a traceparent are:
//
//	00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
//	0  3                                36               53 55
const (
	traceAt = 3
	spanAt  = 36
	flagsAt = 53
	length  = 55
)

const sampledFlag = 1

// ParseTraceparent reads a header such as
// "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01". It takes nothing but
// lowercase digits and refuses ids of zeros. Of versions above 00 it reads what it knows
// and ignores what follows after another dash; version ff does not exist. Flags other than
// sampled are ignored.
func ParseTraceparent(header string) (Traceparent, error) {
	var version, flags [1]byte
	var p Traceparent
	ok := len(header) >= length &&
		header[traceAt-1] == '-' && header[spanAt-1] == '-' && header[flagsAt-1] == '-' &&
		unhex(version[:], header) && unhex(p.Trace[:], header[traceAt:]) &&
		unhex(p.Span[:], header[spanAt:]) && unhex(flags[:], header[flagsAt:]) &&
		p.Trace != TraceID{} && p.Span != SpanID{} && endsWell(version[0], header[length:])
	if !ok {
		return Traceparent{}, ErrTraceparent
	}
	p.Sampled = flags[0]&sampledFlag != 0
	return p, nil
}

// endsWell says whether a version may have more after the flags.
func endsWell(version byte, rest string) bool {
	switch version {
	case 0:
		return rest == ""
	case 0xff:
		return false
	}
	return rest == "" || rest[0] == '-'
}

// String returns the header, of version 00.
func (p Traceparent) String() string {
	text := [length]byte{0: '0', 1: '0', traceAt - 1: '-', spanAt - 1: '-', flagsAt - 1: '-', flagsAt: '0', flagsAt + 1: '0'}
	hex.Encode(text[traceAt:], p.Trace[:])
	hex.Encode(text[spanAt:], p.Span[:])
	if p.Sampled {
		text[flagsAt+1] = '1'
	}
	return string(text[:])
}

// declines says whether a header has the flag that its caller does not trace. It looks at
// one byte, because most requests are not traced. Should the rest be malformed, the
// request is not traced either.
func declines(header string) bool {
	if len(header) < length {
		return false
	}
	digit := digits[header[length-1]]
	return digit != notADigit && digit&sampledFlag == 0
}

// unhex fills dst from the start of src, and says whether these were digits.
func unhex(dst []byte, src string) bool {
	bad := byte(0)
	for i := range dst {
		high, low := digits[src[2*i]], digits[src[2*i+1]]
		bad |= high | low
		dst[i] = high<<4 | low&15
	}
	return bad < 16
}

const notADigit = 0xff

// digits maps 0-9 and a-f to their value.
var digits = func() (table [256]byte) {
	for i := range table {
		table[i] = notADigit
	}
	for i, digit := range []byte("0123456789abcdef") {
		table[digit] = byte(i) //nolint:gosec // below 16
	}
	return table
}()
