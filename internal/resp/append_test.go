package resp

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestAppend(t *testing.T) {
	tests := []struct{ name, got, want string }{
		{"simple", string(AppendSimple(nil, "OK")), "+OK\r\n"},
		{"error", string(AppendError(nil, "ERR no")), "-ERR no\r\n"},
		{"error with a line end", string(AppendError(nil, "ERR a\r\n+OK\r\n\x00b")), "-ERR a  +OK   b\r\n"},
		{"simple with a line end", string(AppendSimple(nil, "a\nb")), "+a b\r\n"},
		{"int", string(AppendInt(nil, 7)), ":7\r\n"},
		{"negative", string(AppendInt(nil, -1)), ":-1\r\n"},
		{"least", string(AppendInt(nil, math.MinInt64)), ":-9223372036854775808\r\n"},
		{"greatest", string(AppendInt(nil, math.MaxInt64)), ":9223372036854775807\r\n"},
		{"bulk", string(AppendBulk(nil, "a\r\nb")), "$4\r\na\r\nb\r\n"},
		{"bulk of bytes", string(AppendBulk(nil, []byte{0})), "$1\r\n\x00\r\n"},
		{"empty bulk", string(AppendBulk(nil, "")), "$0\r\n\r\n"},
		{"array", string(AppendArray(nil, 12)), "*12\r\n"},
		{"appended", string(AppendInt(AppendArray([]byte("x"), 1), 2)), "x*1\r\n:2\r\n"},
		{"null 2", string(RESP2.AppendNull(nil)), "$-1\r\n"},
		{"null 3", string(RESP3.AppendNull(nil)), "_\r\n"},
		{"map 2", string(RESP2.AppendMap(nil, 3)), "*6\r\n"},
		{"map 3", string(RESP3.AppendMap(nil, 3)), "%3\r\n"},
		{"set 2", string(RESP2.AppendSet(nil, 3)), "*3\r\n"},
		{"set 3", string(RESP3.AppendSet(nil, 3)), "~3\r\n"},
		{"true 2", string(RESP2.AppendBool(nil, true)), ":1\r\n"},
		{"false 2", string(RESP2.AppendBool(nil, false)), ":0\r\n"},
		{"true 3", string(RESP3.AppendBool(nil, true)), "#t\r\n"},
		{"false 3", string(RESP3.AppendBool(nil, false)), "#f\r\n"},
		{"double 2", string(RESP2.AppendDouble(nil, 1.5)), "$3\r\n1.5\r\n"},
		{"double 3", string(RESP3.AppendDouble(nil, 1.5)), ",1.5\r\n"},
		{"infinite", string(RESP3.AppendDouble(nil, math.Inf(1))), ",inf\r\n"},
		{"minus infinite", string(RESP2.AppendDouble(nil, math.Inf(-1))), "$4\r\n-inf\r\n"},
		{"no number", string(RESP3.AppendDouble(nil, math.NaN())), ",nan\r\n"},
		{"text 2", string(RESP2.AppendText(nil, "a")), "$1\r\na\r\n"},
		{"text 3", string(RESP3.AppendText(nil, "a")), "=5\r\ntxt:a\r\n"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, tt.got, tt.want)
		}
	}
}

func TestAppendInt(t *testing.T) {
	for n := int64(-20); n < 20_000; n++ {
		if got, want := string(AppendInt(nil, n)), fmt.Sprintf(":%d\r\n", n); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		n := random.Int64N(1e8)
		if got, want := string(AppendInt(nil, n)), fmt.Sprintf(":%d\r\n", n); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	for n := int64(10_000); n > 0; n *= 10 { // until it wraps
		for _, n := range []int64{n - 1, n, n + 1} {
			if got, want := string(AppendInt(nil, n)), fmt.Sprintf(":%d\r\n", n); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	}
}

// Whatever is in it, a line is one line.
func FuzzAppendError(f *testing.F) {
	f.Add("ERR unknown command 'a\r\n+OK'")
	f.Fuzz(func(t *testing.T, text string) {
		for _, got := range []string{string(AppendError(nil, text)), string(AppendSimple(nil, text))} {
			if line, ok := strings.CutSuffix(got, "\r\n"); !ok || strings.ContainsAny(line, "\r\n") || len(line) != len(text)+1 {
				t.Errorf("%q becomes %q", text, got)
			}
		}
	})
}

func TestAppendDoesNotAllocate(t *testing.T) {
	b := make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() {
		b = AppendArray(b[:0], 6)
		b = AppendBulk(AppendInt(AppendSimple(b, "OK"), -1234), "bulk")
		b = RESP3.AppendDouble(RESP3.AppendNull(b), 0.25)
		b = RESP2.AppendDouble(AppendError(b, "ERR no"), 0.25)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestAppendIntOfEveryLength: numbers around each power of ten are written as strconv does.
func TestAppendIntOfEveryLength(t *testing.T) {
	for power := int64(1); power > 0 && power <= math.MaxInt64/10; power *= 10 {
		for _, n := range []int64{power - 1, power, power + 1, 9 * power, -power} {
			if got, want := string(AppendInt([]byte("x"), n)), fmt.Sprintf("x:%d\r\n", n); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	}
}
