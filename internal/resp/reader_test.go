package resp

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	tests := []struct {
		name, in string
		want     [][]string
		problem  string
	}{
		{name: "nothing"},
		{"multibulk", "*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n", [][]string{{"ECHO", "hi"}}, ""},
		{"inline", "PING\r\n", [][]string{{"PING"}}, ""},
		{"inline, bare", "PING\n", [][]string{{"PING"}}, ""},
		{"pipeline", "PING\r\n*1\r\n$4\r\nPING\r\nECHO a\r\n", [][]string{{"PING"}, {"PING"}, {"ECHO", "a"}}, ""},
		{"any bytes", "*1\r\n$6\r\n\x00\r\n*1\n\r\n", [][]string{{"\x00\r\n*1\n"}}, ""},
		{"empty argument", "*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", [][]string{{"ECHO", ""}}, ""},
		{"empty commands", "\r\n\n  \r\n*0\r\nPING\r\n", [][]string{{"PING"}}, ""},
		{"half a command", "*1\r\n$4\r\nPIN", nil, ""},
		{"quotes", `SET "a b" 'c d' "\x41\n\"\q\xg" 'it\'s \n' e"f g"` + "\r\n", [][]string{{"SET", "a b", "c d", "A\n\"qxg", `it's \n`, "ef g"}}, ""},
		{"empty quotes", `ECHO "" ''` + "\n", [][]string{{"ECHO", "", ""}}, ""},
		{"open quote", `ECHO "a` + "\n", nil, "unbalanced quotes in request"},
		{"open at an escape", `ECHO "a\` + "\n", nil, "unbalanced quotes in request"},
		{"after a quote", `ECHO "a"b` + "\n", nil, "unbalanced quotes in request"},
		{"longest argument", "*1\r\n$65536\r\n" + long + "\r\n", [][]string{{long}}, ""},
		{"too long argument", "*1\r\n$65537\r\n", nil, "invalid bulk length"},
		{"two long arguments", "*2\r\n$65536\r\n" + long + "\r\n$65536\r\n", nil, "too big command"},
		{"most arguments", "*64\r\n" + strings.Repeat("$1\r\na\r\n", 64), [][]string{strings.Split(strings.Repeat("a", 64), "")}, ""},
		{"too many arguments", "*65\r\n", nil, "invalid multibulk length"},
		{"a billion arguments", "*1000000000\r\n", nil, "invalid multibulk length"},
		{"more than int64", "*99999999999999999999\r\n", nil, "invalid multibulk length"},
		{"negative count", "*-1\r\n", nil, "invalid multibulk length"},
		{"negative length", "*1\r\n$-2\r\n", nil, "invalid bulk length"},
		{"null length", "*1\r\n$-1\r\n", nil, "invalid bulk length"},
		{"a huge length", "*1\r\n$9223372036854775807\r\n", nil, "invalid bulk length"},
		{"a length with a sign", "*1\r\n$+4\r\nPING\r\n", nil, "invalid bulk length"},
		{"a length with a zero before", "*1\r\n$04\r\nPING\r\n", nil, "invalid bulk length"},
		{"no length", "*1\r\n$\r\n", nil, "invalid bulk length"},
		{"no carriage return", "*1\n$4\nPING\n", nil, "invalid multibulk length"},
		{"an endless count", "*" + strings.Repeat("1", 40), nil, "too big mbulk count string"},
		{"an endless length", "*1\r\n$" + strings.Repeat("1", 40), nil, "too big bulk count string"},
		{"no dollar", "*1\r\n:4\r\n", nil, "expected '$', got ':'"},
		{"a control character", "*1\r\n\r\n", nil, "expected '$', got '?'"},
		{"a bulk that goes on", "*1\r\n$4\r\nPINGS\r\n", nil, "expected CRLF after a bulk"},
		{"longest line", long + "\n", [][]string{{long}}, ""},
		{"too long a line", long + "x\n", nil, "too big inline request"},
		{"an endless line", long + "xx", nil, "too big inline request"},
		{"words", strings.Repeat("a ", 65) + "\n", nil, "too many arguments"},
		{"good, then bad", "PING\r\n*x\r\nPING\r\n", [][]string{{"PING"}}, "invalid multibulk length"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, size := range []int{1, 2, 3, 7, 100_000} {
				got, problem := readAll(&pieces{[]byte(tt.in), size}, Limits{})
				if !reflect.DeepEqual(got, tt.want) || problem != tt.problem {
					t.Errorf("in pieces of %d: %.200q, %q; want %.200q, %q", size, got, problem, tt.want, tt.problem)
				}
			}
			if got, problem := model([]byte(tt.in), Limits{}); !reflect.DeepEqual(got, tt.want) || problem != tt.problem {
				t.Errorf("the model says %.200q, %q; want %.200q, %q", got, problem, tt.want, tt.problem)
			}
		})
	}
}

// The stream is cut in two at every byte.
func TestSplitEverywhere(t *testing.T) {
	in := bytes.Join([][]byte{command("WEIR.CHECK", "default", "alice", "2"), []byte("ECHO \"a\\x41 b\"\r\n*0\r\n\r\n"), command("PING"), []byte("QUIT\n")}, nil)
	want, _ := model(in, Limits{})
	for cut := range in {
		got, problem := readAll(io.MultiReader(bytes.NewReader(in[:cut]), bytes.NewReader(in[cut:])), Limits{})
		if !reflect.DeepEqual(got, want) || problem != "" {
			t.Fatalf("cut at %d: %q, %q; want %q", cut, got, problem, want)
		}
	}
}

func TestErrorsOfTheSource(t *testing.T) {
	r := NewReader(strings.NewReader("*1\r\n$4\r\nPI"), Limits{})
	if _, err := r.Read(); err != io.ErrUnexpectedEOF || !r.Partial() {
		t.Errorf("err = %v, want an unexpected end", err)
	}
	r = NewReader(strings.NewReader("PING\n"), Limits{})
	if _, err := r.Read(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(); err != io.EOF || r.Partial() {
		t.Errorf("err = %v, want the end", err)
	}
	r = NewReader(strings.NewReader("*x\r\nPING\r\n"), Limits{})
	for range 3 {
		if _, err := r.Read(); !errors.As(err, new(*ProtocolError)) || err.Error() != "Protocol error: invalid multibulk length" {
			t.Errorf("err = %v, want the same each time", err)
		}
		if err := r.Fill(); !errors.As(err, new(*ProtocolError)) {
			t.Errorf("Fill: %v", err)
		}
	}
}

// The buffer follows what was received, not what was announced, and is given back.
func TestBufferIsBounded(t *testing.T) {
	l := Limits{}.normal()
	r := NewReader(&pieces{[]byte("*64\r\n$65536\r\nabc"), 5}, l)
	_, _ = r.Read()
	if len(r.buf) != firstBuffer {
		t.Errorf("%d bytes for an announcement", len(r.buf))
	}
	big := command(strings.Repeat("x", l.Bulk), strings.Repeat("y", l.Bulk-100))
	r = NewReader(bytes.NewReader(bytes.Repeat(append(big, "PING\r\n"...), 3)), l)
	most := 0
	for {
		args, err := r.Read()
		if err != nil {
			break
		}
		if most = max(most, len(r.buf)); len(args) == 2 && (len(args[0]) != l.Bulk || args[1][0] != 'y') {
			t.Fatalf("%d bytes of %d, %q", len(args[0]), l.Bulk, args[1][:1])
		}
	}
	if most > 2*l.Command {
		t.Errorf("the buffer had %d bytes", most)
	}
	if len(r.buf) > keepBuffer {
		t.Errorf("the buffer kept %d bytes", len(r.buf))
	}
}

func TestReadAgreesWithTheModel(t *testing.T) {
	parts := []string{
		"*", "$", "\r\n", "\n", "1", "2", "3", "-", "0", " ", `"`, "'", `\`, "x", "41", "PING", "a",
		"*1\r\n$4\r\nPING\r\n", "*2\r\n$1\r\na\r\n$2\r\nbc\r\n", "*0\r\n", "PING\r\n", "$1\r\na\r\n", "*3\r\n", strings.Repeat("long", 20),
	}
	for _, size := range []int{1, 9, 10, 50, 70, 71} { // and more than the limits
		arg := strings.Repeat("y", size)
		parts = append(parts, string(command(arg)), string(command(arg, "", arg)), string(command("a", "b", "c", arg)))
	}
	l := Limits{Args: 3, Bulk: 70, Inline: 90, Command: 150}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50_000 {
		var in []byte
		for range rng.IntN(12) {
			in = append(in, parts[rng.IntN(len(parts))]...)
		}
		agree(t, in, l, 1+rng.IntN([]int{9, 100, 1000}[rng.IntN(3)]))
	}
}

// agree compares the Reader with the model. The Reader may know of a line that is too long
// before the model does, which looks at whole lines.
func agree(t *testing.T, in []byte, l Limits, size int) {
	t.Helper()
	want, wantProblem := model(in, l)
	got, problem := readAll(&pieces{in, size}, l)
	if !reflect.DeepEqual(got, want) || problem != wantProblem {
		t.Fatalf("%q in pieces of %d: %q, %q; the model says %q, %q", in, size, got, problem, want, wantProblem)
	}
}

func FuzzRead(f *testing.F) {
	for _, in := range []string{
		"PING\r\n", "*1000000000\r\n", "*1\r\n$-2\r\n", "*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\nECHO 'a \\' b' \"\\x41\"\r\n*0\r\n",
		"*1\r\n$5\r\nPING\r\n", "ECHO \"a\"b\n", "*-1\r\n", "$4\r\nPING\r\n", "POST / HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		f.Add([]byte(in), uint8(3))
	}
	f.Fuzz(func(t *testing.T, in []byte, size uint8) {
		agree(t, in, Limits{}, 1+int(size))
		agree(t, in, Limits{Args: 2, Bulk: 5, Inline: 12, Command: 40}, 1+int(size))
	})
}

func TestReadDoesNotAllocate(t *testing.T) {
	in := bytes.Repeat(append(command("WEIR.CHECK", "default", "alice", "1"), "CL.THROTTLE \"user 1\" 15 30 60\r\n"...), 8)
	src := bytes.NewReader(in)
	r := NewReader(src, Limits{})
	if n := testing.AllocsPerRun(100, func() {
		src.Reset(in)
		for range 16 {
			if _, err := r.Read(); err != nil {
				t.Fatal(err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations for 16 commands", n)
	}
}

func BenchmarkRead(b *testing.B) {
	for name, one := range map[string][]byte{
		"multibulk": command("WEIR.CHECK", "default", "alice", "1"),
		"inline":    []byte("WEIR.CHECK default alice 1\r\n"),
	} {
		b.Run(name, func(b *testing.B) {
			in := bytes.Repeat(one, 16)
			src := bytes.NewReader(in)
			r := NewReader(src, Limits{})
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%16 == 0 {
					src.Reset(in)
				}
				if _, err := r.Read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
