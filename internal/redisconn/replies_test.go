package redisconn

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// goodReplies has every type of RESP2 and RESP3, and what is just within the bounds.
var goodReplies = []string{
	"+OK\r\n", "+\r\n", "+a\rb\r\n", "-ERR no\r\n", ":1\r\n", ":-12\r\n", ",1.5\r\n", ",inf\r\n", "#t\r\n", "#f\r\n", "_\r\n",
	"(123456789012345678901234567890\r\n",
	"$0\r\n\r\n", "$3\r\na\r\n\r\n", "$-1\r\n", "!5\r\nERR x\r\n", "=7\r\ntxt:a\r\n\r\n", "$3\r\n*9\n\r\n",
	"*0\r\n", "*-1\r\n", "*2\r\n:1\r\n$1\r\nx\r\n", "*2\r\n*0\r\n*1\r\n*1\r\n:1\r\n", "~1\r\n+a\r\n", "%1\r\n+a\r\n:1\r\n", "%0\r\n",
	">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n", "|1\r\n+ttl\r\n:3\r\n:7\r\n", "*2\r\n|1\r\n+a\r\n+b\r\n:1\r\n:2\r\n", "|0\r\n:1\r\n",
	"+" + strings.Repeat("x", maxLine-2) + "\r\n",
	"$" + strconv.Itoa(maxBulk) + "\r\n" + strings.Repeat("x", maxBulk) + "\r\n",
	"*" + strconv.Itoa(maxElements) + "\r\n" + strings.Repeat("_\r\n", maxElements),
	"%" + strconv.Itoa(maxElements/2) + "\r\n" + strings.Repeat("_\r\n", maxElements),
	strings.Repeat("*1\r\n", maxDepth) + ":1\r\n",
}

func TestGoodRepliesPass(t *testing.T) {
	t.Parallel()
	all := strings.Join(goodReplies, "")
	for _, text := range append(goodReplies, all) {
		for _, piece := range []int{1, 2, 7, 4096, len(text)} {
			var s replyScanner
			good, err := scanPieces(&s, text, piece)
			if err != nil || good != len(text) {
				t.Fatalf("%.40q in pieces of %d: %d of %d bytes, %v", text, piece, good, len(text), err)
			}
			if s != (replyScanner{kind: s.kind, last: s.last, negative: s.negative, digits: s.digits, n: s.n, left: s.left}) {
				t.Fatalf("%.40q: %+v is not at the beginning of a reply", text, s)
			}
		}
	}
}

func TestBadRepliesAreRefused(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("$1048576\r\n"+strings.Repeat("x", maxBulk)+"\r\n", 16)
	tests := []struct {
		stream string
		good   int // bytes before the one that is wrong
		want   string
	}{
		{"*2147483647\r\n", 12, "it announces 2147483647 elements"},
		{"+OK\r\n*262145\r\n", 13, "it announces 262145 elements"},
		{"%131073\r\n", 8, "it announces 262146 elements in all"},
		{"*2\r\n*131072\r\n" + strings.Repeat("_\r\n", 131072) + "*131071\r\n", 4 + 9 + 3*131072 + 8, "it announces 262145 elements in all"},
		{"$1073741824\r\n", 12, "it announces a string of 1073741824 bytes"},
		{"!1048577\r\n", 9, "it announces a string of 1048577 bytes"},
		{"=1048577\r\n", 9, "it announces a string of 1048577 bytes"},
		{"*16\r\n" + text, 5 + 15*(maxBulk+12) + 9, "it is longer than 16777216 bytes"},
		{strings.Repeat("*1\r\n", maxDepth+1), 4*maxDepth + 3, "arrays are nested deeper than 16"},
		{"+" + strings.Repeat("x", maxLine), maxLine, ""},
		{"+" + strings.Repeat("x", maxLine+1), maxLine + 1, "a line is longer than 65536 bytes"},
		{"$99999999999999999999\r\n", 16, "has more than 15 digits"},
		{"*-2\r\n", 4, `the length of a value of type '*' is -2`},
		{"%-1\r\n", 4, `the length of a value of type '%' is -1`},
		{"$--1\r\n", 2, `has a '-' in it`},
		{"$\r\n", 1, `has a '\r' in it`},
		{"$-\r\n", 2, `has a '\r' in it`},
		{"$?\r\n", 1, `has a '?' in it`},
		{"*?\r\n", 1, `has a '?' in it`},
		{"$1\rx", 3, "a length does not end with CRLF"},
		{"$1\r\nabc", 5, "a string does not end with CRLF"},
		{"$1\r\na\rc", 6, "a string does not end with CRLF"},
		{"+OK\n", 3, "a line does not end with CRLF"},
		{"#true\r\n", 6, `a value of type '#' has 6 bytes`},
		{"_x\r\n", 3, `a value of type '_' has 3 bytes`},
		{".\r\n", 0, `received unknown message type: '.'`},
		{";1\r\n", 0, `received unknown message type: ';'`},
		{"HTTP/1.1 200 OK\r\n", 0, `received unknown message type: 'H'`},
	}
	for _, tt := range tests {
		for _, piece := range []int{1, 3, 65536, len(tt.stream)} {
			if tt.want == "" {
				tt.good = len(tt.stream)
			}
			good, err := scanPieces(new(replyScanner), tt.stream, piece)
			if good != tt.good || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%.30q in pieces of %d: %d bytes, %v; want %d, %q", tt.stream, piece, good, err, tt.good, tt.want)
			}
		}
	}
}

// scanPieces scans a stream that comes in pieces.
func scanPieces(s *replyScanner, stream string, piece int) (good int, err error) {
	for len(stream) > 0 {
		b := []byte(stream[:min(piece, len(stream))])
		n, err := s.scan(b)
		good += n
		if err != nil {
			return good, err
		}
		stream = stream[len(b):]
	}
	return good, nil
}

// FuzzReplies compares the scanner with a reader that has the whole stream at once.
func FuzzReplies(f *testing.F) {
	for _, text := range goodReplies {
		if len(text) < 100 {
			f.Add([]byte(text), uint8(1))
		}
	}
	f.Add([]byte(strings.Join(goodReplies[:20], "")), uint8(3))
	f.Add([]byte("*2\r\n$1048577\r\n"), uint8(5))
	f.Add([]byte("*2\r\n%131073\r\n"), uint8(5))
	f.Fuzz(func(t *testing.T, stream []byte, piece uint8) {
		whole, wholeErr := new(replyScanner).scan(stream)
		good, err := scanPieces(new(replyScanner), string(stream), int(piece)+1)
		if good != whole || fmt.Sprint(err) != fmt.Sprint(wholeErr) {
			t.Fatalf("in pieces of %d: %d, %v; as a whole: %d, %v", int(piece)+1, good, err, whole, wholeErr)
		}
		r := bufio.NewReader(bytes.NewReader(stream))
		for wholeErr == nil {
			budget := maxElements
			err := readValue(r, 0, &budget)
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return
			}
			wholeErr = err
			if err != nil {
				t.Fatalf("%q passes, but %v", stream, err)
			}
		}
		for {
			budget := maxElements
			err := readValue(r, 0, &budget)
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%q is refused: %v", stream, wholeErr)
			}
			if err != nil {
				return
			}
		}
	})
}

// readValue reads one value as the protocol is described. io.EOF and io.ErrUnexpectedEOF say
// that the stream is not long enough to tell, other errors that it is wrong.
func readValue(r *bufio.Reader, depth int, budget *int) error {
	kind, err := r.ReadByte()
	if err != nil {
		return err
	}
	if !strings.ContainsRune(":+-,(_#$!=*~>%|", rune(kind)) || kind >= 0x80 {
		return fmt.Errorf("type %q", kind)
	}
	aggregate := strings.ContainsRune("*~>%|", rune(kind))
	text := strings.ContainsRune("$!=", rune(kind))
	line, err := readLine(r, aggregate || text)
	switch {
	case err != nil:
		return err
	case kind == '_' && line != "", kind == '#' && len(line) != 1:
		return fmt.Errorf("%c%s", kind, line)
	case !aggregate && !text, line == "-1" && (kind == '$' || kind == '*'):
		return nil
	}
	n, err := strconv.Atoi(line)
	if err != nil || line[0] == '-' {
		return fmt.Errorf("length %q", line)
	}
	if text {
		return readText(r, n)
	}
	if kind == '%' || kind == '|' {
		n *= 2
	}
	if *budget -= n; *budget < 0 || depth == maxDepth {
		return errors.New("too many elements")
	}
	if kind == '|' {
		n++
	}
	for range n {
		if err := readValue(r, depth+1, budget); err != nil {
			return err
		}
	}
	return nil
}

// readLine reads the rest of a line. A length is wrong as soon as a byte is.
func readLine(r *bufio.Reader, length bool) (line string, err error) {
	for {
		c, err := r.ReadByte()
		if err != nil {
			return "", err
		}
		ended := strings.HasSuffix(line, "\r")
		switch {
		case c == '\n' && ended:
			return line[:len(line)-1], nil
		case c == '\n', length && ended:
			return "", errors.New("no CRLF")
		case length && c == '\r' && line != "" && line != "-":
		case length && (c < '0' || c > '9') && (c != '-' || line != ""):
			return "", fmt.Errorf("byte %q in a length", c)
		case length && len(strings.TrimPrefix(line, "-")) == maxDigits && c != '\r', len(line) > maxLine:
			return "", errors.New("too long")
		}
		line += string([]byte{c})
	}
}

func readText(r *bufio.Reader, n int) error {
	if n > maxBulk {
		return errors.New("too long")
	}
	if _, err := io.CopyN(io.Discard, r, int64(n)); err != nil {
		return err
	}
	for _, want := range []byte("\r\n") {
		switch c, err := r.ReadByte(); {
		case err != nil:
			return err
		case c != want:
			return errors.New("no CRLF")
		}
	}
	return nil
}

// What was read before a reply that is refused is still delivered, and nothing after it.
func TestGuardedConn(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	defer here.Close()
	go func() {
		defer there.Close()
		_, _ = io.WriteString(there, "+OK\r\n*2147483647\r\n+never\r\n")
	}()
	all, err := io.ReadAll(&guardedConn{Conn: here})
	var refused *ReplyError
	if string(all) != "+OK\r\n*2147483647\r" || !errors.As(err, &refused) {
		t.Errorf("read %q, %v", all, err)
	}
}

// A server that announces what nobody has memory for costs the connection, and little memory.
func TestHugeReplies(t *testing.T) {
	for _, huge := range []string{"*2147483647\r\n", "$1073741824\r\n", "%1073741824\r\n", ">2147483647\r\n", "*-2\r\n"} {
		t.Run(strings.TrimSpace(huge), func(t *testing.T) {
			before := allocated()
			hugeCommand(t, huge)
			hugeDirect(t, huge)
			hugeWatch(t, huge)
			hugeCluster(t, huge)
			hugeSentinel(t, huge)
			if mib := (allocated() - before) >> 20; mib >= 64 {
				t.Errorf("%d MiB were allocated", mib)
			}
		})
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// startHuge starts a server that answers HELLO, INFO and PING, and everything else with answer.
func startHuge(t *testing.T, info string, answer func(command []string) string) Config {
	t.Helper()
	addr := startFake(t, func(command []string) string {
		switch strings.ToUpper(command[0]) {
		case "HELLO":
			return "%2\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n:3\r\n"
		case "INFO":
			return bulk("redis_version:7.0.0\r\n" + info)
		case "PING":
			return "+PONG\r\n"
		}
		return answer(command)
	})
	return Config{Addrs: []string{addr}, Conns: 1}
}

func always(answer string) func([]string) string { return func([]string) string { return answer } }

func wantReplyError(t *testing.T, what string, err error) {
	t.Helper()
	var refused *ReplyError
	if !errors.As(err, &refused) {
		t.Errorf("%s: %v, want a ReplyError", what, err)
	}
}

func hugeCommand(t *testing.T, huge string) {
	t.Helper()
	conn := open(t, startHuge(t, "", always(huge)))
	_, err := try(testContext(t), conn, "key", "GET", "key")
	wantReplyError(t, "a command", err)
	if !IsUnknown(err) {
		t.Errorf("%v does not mean that the outcome is unknown", err)
	}
}

func hugeDirect(t *testing.T, huge string) {
	t.Helper()
	conn := open(t, startHuge(t, "", always(huge)))
	client, closing, err := conn.Direct(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	defer closing()
	for _, r := range client.DoMulti(context.Background(), client.B().Get().Key("a").Build(), client.B().Get().Key("b").Build()) {
		wantReplyError(t, "a pipeline", r.Error())
	}
}

func hugeWatch(t *testing.T, huge string) {
	t.Helper()
	conn := open(t, startHuge(t, "", always(huge)))
	_, err := conn.Watch(testContext(t), "p:", func([]string) {})
	wantReplyError(t, "a watch", err)
}

func hugeCluster(t *testing.T, huge string) {
	t.Helper()
	_, err := Open(testContext(t), patient(startHuge(t, "cluster_enabled:1\r\n", always(huge))))
	wantReplyError(t, "a cluster", err)
}

func hugeSentinel(t *testing.T, huge string) {
	t.Helper()
	c := startHuge(t, "", always(huge))
	c.Sentinel = "mymaster"
	_, err := Open(testContext(t), patient(c))
	wantReplyError(t, "a Sentinel", err)

	// A Sentinel that works for the first query, and not for that of the client.
	data := startHuge(t, "", always(huge))
	host, port, _ := net.SplitHostPort(data.Addrs[0])
	queries := 0
	c = startHuge(t, "", func(command []string) string {
		if queries++; queries == 1 {
			return "*2\r\n" + bulk(host) + bulk(port)
		}
		return huge
	})
	c.Sentinel = "mymaster"
	_, err = Open(testContext(t), patient(c))
	wantReplyError(t, "a Sentinel's client", err)
}

// BenchmarkReplies has the replies to 16 calls of a script with 32 decisions each.
func BenchmarkReplies(b *testing.B) {
	var text strings.Builder
	for range 16 {
		text.WriteString("*33\r\n:1700000000000000\r\n")
		for i := range 32 {
			fmt.Fprintf(&text, ":%d\r\n", 1_000_000+i*2345)
		}
	}
	stream := []byte(text.String())
	var s replyScanner
	b.SetBytes(int64(len(stream)))
	for b.Loop() {
		if _, err := s.scan(stream); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(16*32), "ns/decision")
}
