package resp

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"strconv"
)

// AppendSimple appends a simple string such as OK. Control characters become spaces.
func AppendSimple(b []byte, text string) []byte { return appendLine(append(b, '+'), text) }

// AppendError appends an error. By convention it begins with a word in capitals, such as
// ERR. Control characters become spaces.
func AppendError(b []byte, text string) []byte { return appendLine(append(b, '-'), text) }

// appendLine appends a text that must not end its line early.
func appendLine(b []byte, text string) []byte {
	from := len(b)
	b = append(b, text...)
	for i := from; i < len(b); i++ {
		if b[i] < ' ' || b[i] == 0x7f {
			b[i] = ' '
		}
	}
	return append(b, '\r', '\n')
}

// AppendInt appends an integer.
func AppendInt(b []byte, n int64) []byte { return appendHead(b, ':', n) }

// AppendBulk appends a string of any bytes.
func AppendBulk[T string | []byte](b []byte, text T) []byte {
	b = appendHead(b, '$', int64(len(text)))
	b = append(b, text...)
	return append(b, '\r', '\n')
}

// AppendArray appends the head of an array: n replies follow.
func AppendArray(b []byte, n int) []byte { return appendHead(b, '*', int64(n)) }

func appendHead(b []byte, kind byte, n int64) []byte {
	switch { // most are short, and strconv takes several times as long
	case uint64(n) < 10:
		return append(b, kind, byte('0'+n), '\r', '\n')
	case uint64(n) < 1e8:
		return appendEight(b, kind, uint64(n))
	case n == -1: // never, or nothing to wait for
		return append(b, kind, '-', '1', '\r', '\n')
	}
	b = strconv.AppendInt(append(b, kind), n, 10)
	return append(b, '\r', '\n')
}

// appendEight appends a number between 1 and 99,999,999. All eight digits are written, beginning
// with the first that is not zero, and the line's end over those beyond the last.
func appendEight(b []byte, kind byte, n uint64) []byte {
	const longest = 1 + 8 + 2
	d := digits(n)
	zeros := bits.TrailingZeros64(d) / 8
	b = slices.Grow(b, longest)
	line := b[len(b) : len(b)+longest]
	line[0] = kind
	binary.LittleEndian.PutUint64(line[1:], (d|'0'*0x01_01_01_01_01_01_01_01)>>(8*zeros))
	line[9-zeros], line[10-zeros] = '\r', '\n'
	return b[:len(b)+longest-zeros]
}

// digits returns the eight decimal digits of a number, the first in the lowest byte. It halves
// what stands in each part of the word until each is a digit; a division is a multiplication by
// the inverse, exact for as many digits as there are.
//
//	12345678                                 n
//	    1234 |     5678                      / 10,000
//	 12 | 34 |  56 | 78                      / 100: * 10,486 >> 20
//	1 2 3 4 5 6 7 8                          / 10:  * 103 >> 10
func digits(n uint64) uint64 {
	n = n/10_000 | n%10_000<<32
	hundreds := n * 10_486 >> 20 & 0x7f_0000_007f
	n = hundreds | (n-100*hundreds)<<16
	tens := n * 103 >> 10 & 0xf_000f_000f_000f
	return tens | (n-10*tens)<<8
}

// Version is which replies a client understands: RESP2 or RESP3. A client of RESP2 gets
// for every kind that it does not know the one that Redis sends it instead.
type Version uint8

// The versions.
const (
	RESP2 Version = 2
	RESP3 Version = 3
)

// AppendNull appends nothing, as a value.
func (v Version) AppendNull(b []byte) []byte {
	if v >= RESP3 {
		return append(b, "_\r\n"...)
	}
	return append(b, "$-1\r\n"...)
}

// AppendMap appends the head of a map: n keys follow, each with its value. In RESP2 it is
// an array of both.
func (v Version) AppendMap(b []byte, n int) []byte {
	if v >= RESP3 {
		return appendHead(b, '%', int64(n))
	}
	return AppendArray(b, 2*n)
}

// AppendSet appends the head of a set. In RESP2 it is an array.
func (v Version) AppendSet(b []byte, n int) []byte {
	if v >= RESP3 {
		return appendHead(b, '~', int64(n))
	}
	return AppendArray(b, n)
}

// AppendBool appends a boolean, in RESP2 1 or 0.
func (v Version) AppendBool(b []byte, x bool) []byte {
	switch {
	case v >= RESP3 && x:
		return append(b, "#t\r\n"...)
	case v >= RESP3:
		return append(b, "#f\r\n"...)
	case x:
		return AppendInt(b, 1)
	}
	return AppendInt(b, 0)
}

// AppendDouble appends a floating-point number, in RESP2 as a string.
func (v Version) AppendDouble(b []byte, x float64) []byte {
	var digits [32]byte
	text := digits[:0]
	switch {
	case math.IsNaN(x):
		text = append(text, "nan"...)
	case math.IsInf(x, 1):
		text = append(text, "inf"...)
	case math.IsInf(x, -1):
		text = append(text, "-inf"...)
	default:
		text = strconv.AppendFloat(text, x, 'g', -1, 64)
	}
	if v < RESP3 {
		return AppendBulk(b, text)
	}
	b = append(append(b, ','), text...)
	return append(b, '\r', '\n')
}

// AppendText appends a text for people, in RESP2 as a string.
func (v Version) AppendText(b []byte, text string) []byte {
	if v < RESP3 {
		return AppendBulk(b, text)
	}
	b = appendHead(b, '=', int64(len(text)+len("txt:")))
	b = append(append(b, "txt:"...), text...)
	return append(b, '\r', '\n')
}
