package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestReadFrame(t *testing.T) {
	frames := []string{
		"+OK\r\n", "-ERR no\r\n", ":42\r\n", "_\r\n", "#t\r\n", ",1.5\r\n", "(12345678901234567890\r\n",
		"$0\r\n\r\n", "$4\r\na\r\nb\r\n", "$-1\r\n", "!5\r\nERR x\r\n", "=7\r\ntxt:abc\r\n",
		"*0\r\n", "*-1\r\n", "*2\r\n*1\r\n:1\r\n$1\r\nx\r\n", "~1\r\n+a\r\n", ">2\r\n+message\r\n+x\r\n",
		"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n", "|1\r\n+ttl\r\n:3\r\n+OK\r\n",
	}
	br := bufio.NewReader(strings.NewReader(strings.Join(frames, "")))
	for _, want := range frames {
		got, err := readFrame(br)
		if err != nil || string(got) != want {
			t.Errorf("frame = %q, %v; want %q", got, err, want)
		}
	}
	if _, err := readFrame(br); err != io.EOF {
		t.Errorf("at the end: %v, want EOF", err)
	}
}

func TestReadFrameRefuses(t *testing.T) {
	tests := []struct {
		text string
		want error
	}{
		{"*2\r\n+a\r\n", io.ErrUnexpectedEOF},
		{"$5\r\nab", io.ErrUnexpectedEOF},
		{"GET key\r\n", errProtocol},
		{"\x16\x03\x01\n", errProtocol},
		{"\r\n", errProtocol},
		{"$x\r\n", errProtocol},
		{"*-2\r\n", errProtocol},
		{"$9999999999\r\n", errProtocol},
	}
	for _, tt := range tests {
		_, err := readFrame(bufio.NewReader(strings.NewReader(tt.text)))
		if !errors.Is(err, tt.want) {
			t.Errorf("%q: %v, want %v", tt.text, err, tt.want)
		}
	}
}

func TestCommandName(t *testing.T) {
	tests := []struct{ frame, want string }{
		{string(appendCommand(nil, []string{"evalSha", "x", "0"})), "EVALSHA"},
		{string(appendCommand(nil, []string{"PING"})), "PING"},
		{"*0\r\n", ""},
		{"+PING\r\n", ""},
	}
	for _, tt := range tests {
		got, err := commandName([]byte(tt.frame))
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("name of %q = %q, %v; want %q", tt.frame, got, err, tt.want)
		}
	}
}

// A frame is what was read, byte for byte, whatever was sent.
func FuzzReadFrame(f *testing.F) {
	for _, seed := range []string{"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "%1\r\n+a\r\n|1\r\n+b\r\n+c\r\n+d\r\n", "$-1\r\n+\r\n", "*1\r\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bytes.NewReader(data)
		br := bufio.NewReader(in)
		frame, err := readFrame(br)
		if err != nil {
			return
		}
		read := data[:len(data)-in.Len()-br.Buffered()]
		if !bytes.Equal(frame, read) {
			t.Fatalf("read %q, frame %q", read, frame)
		}
		_, _ = commandName(frame)
	})
}
