package target

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReply(t *testing.T) {
	for _, text := range []string{
		"+OK\r\n", ":-12\r\n", "$5\r\nhello\r\n", "$0\r\n\r\n", "$-1\r\n", "*0\r\n", "*-1\r\n",
		"*2\r\n$1\r\na\r\n*1\r\n:1\r\n", "$4\r\n\r\n\r\n\r\n", "*1\r\n-ERR inside\r\n",
		"_\r\n", "#t\r\n", ",1.5\r\n", "(123456789012345678901234567890\r\n", "=7\r\ntxt:abc\r\n",
		"%1\r\n+a\r\n:1\r\n", "~2\r\n:1\r\n:2\r\n",
		strings.Repeat("*1\r\n", maxDepth) + ":1\r\n",
		"$100000\r\n" + strings.Repeat("x", 100000) + "\r\n",
	} {
		r, err := readReply(newReplyReader(strings.NewReader(text)))
		if err != nil || r.isError || r.size != len(text) {
			t.Errorf("%.60q: %+v, %v", text, r, err)
		}
		if got := r.result(); !got.OK || got.Code != "reply" || got.Bytes != len(text) {
			t.Errorf("%.60q: %+v", text, got)
		}
	}
}

func TestErrorReply(t *testing.T) {
	for _, tt := range []struct{ text, code string }{
		{"-ERR unknown command\r\n", "ERR"},
		{"-WRONGTYPE Operation against\r\n", "WRONGTYPE"},
		{"-NOAUTH\r\n", "NOAUTH"},
		{"!9\r\nBUSY wait\r\n", "BUSY"},
		{"!300\r\nBUSY " + strings.Repeat("x", 295) + "\r\n", "BUSY"},
		{"-\r\n", "error reply"},
		{"-no such thing\r\n", "error reply"},
		{"-ERRor\r\n", "error reply"},
		{"-" + strings.Repeat("A", 25) + "\r\n", "error reply"},
	} {
		r, err := readReply(newReplyReader(strings.NewReader(tt.text)))
		got := r.result()
		if err != nil || got.OK || got.Code != tt.code || got.Bytes != len(tt.text) || len(r.text) > maxText {
			t.Errorf("%.60q: %+v, %v", tt.text, got, err)
		}
	}
}

// badReplies is what no reply looks like, and what the error is.
var badReplies = []struct {
	text string
	want error
}{
	{"", io.EOF},
	{"+OK", io.ErrUnexpectedEOF},
	{"$5\r\nhel", io.ErrUnexpectedEOF},
	{"!5\r\nhel", io.ErrUnexpectedEOF},
	{"$5\r\nhello", io.ErrUnexpectedEOF},
	{"*2\r\n:1\r\n", io.ErrUnexpectedEOF},
	{"\r\n", errBadReply},
	{"\n", errBadReply},
	{"+OK\n", errBadReply},
	{"HTTP/1.1 400 Bad Request\r\n", errBadReply},
	{">1\r\n+x\r\n", errBadReply},
	{"$\r\n", errBadReply},
	{"$-2\r\n", errBadReply},
	{"$+5\r\nhello\r\n", errBadReply},
	{"$99999999999999999999\r\n", errBadReply},
	{"$5\r\nhello!\r\n", errBadReply},
	{"*x\r\n", errBadReply},
	{fmt.Sprintf("$%d\r\n", maxAnswer), errTooLarge},
	{fmt.Sprintf("!%d\r\n", maxAnswer), errTooLarge},
	{fmt.Sprintf("*%d\r\n", maxElements+1), errBadReply},
	{fmt.Sprintf("%%%d\r\n", maxElements+1), errBadReply},
	{strings.Repeat("*1\r\n", maxDepth+1) + ":1\r\n", errBadReply},
	{"+" + strings.Repeat("x", maxLine) + "\r\n", errBadReply},
}

func TestBadReply(t *testing.T) {
	for _, tt := range badReplies {
		if r, err := readReply(newReplyReader(strings.NewReader(tt.text))); !errors.Is(err, tt.want) {
			t.Errorf("%.60q: %+v, %v; want %v", tt.text, r, err, tt.want)
		}
	}
}

// TestReplySizeIsBounded has small values without end: an array of arrays may have
// 2^160 of them.
func TestReplySizeIsBounded(t *testing.T) {
	p := replyParser{r: newReplyReader(strings.NewReader("*3\r\n:1\r\n:2\r\n:3\r\n")), size: maxAnswer - 12}
	if _, err := p.value(0); !errors.Is(err, errTooLarge) {
		t.Error(err)
	}
}

// FuzzReply: what is accepted was all read and no more, comes out the same however
// the bytes arrive, and a part of it is not accepted.
func FuzzReply(f *testing.F) {
	for _, s := range []string{"+OK\r\n", "-ERR x\r\n", "$5\r\nhello\r\n", "*2\r\n$1\r\na\r\n*1\r\n:1\r\n", "!3\r\nERR\r\n", "%1\r\n+a\r\n$-1\r\n", "+OK\r\n+OK\r\n"} {
		f.Add([]byte(s))
	}
	for _, b := range badReplies {
		f.Add([]byte(b.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		text := string(data)
		r, err := readReply(newReplyReader(strings.NewReader(text)))
		slow, slowErr := readReply(newReplyReader(iotest.OneByteReader(strings.NewReader(text))))
		if r != slow || (err == nil) != (slowErr == nil) {
			t.Fatalf("%+v, %v at once; %+v, %v byte by byte", r, err, slow, slowErr)
		}
		if r.size > len(text) || len(r.text) > maxText || codeOf(errors.Join(err, io.EOF)) == "" {
			t.Fatalf("%+v of %d bytes", r, len(text))
		}
		if err != nil {
			return
		}
		if _, err := readReply(newReplyReader(strings.NewReader(text[:r.size-1]))); err == nil {
			t.Fatalf("%q was accepted without its last byte", text[:r.size])
		}
	})
}
