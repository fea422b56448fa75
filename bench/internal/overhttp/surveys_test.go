package overhttp

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
)

var tiny = Sizes{Keys: 50, Rounds: 2, PerRun: 10 * time.Millisecond}

// TestSurveys runs every survey briefly and checks that the answers are plausible.
func TestSurveys(t *testing.T) {
	for _, s := range Surveys(tiny) {
		t.Run(s.Name, func(t *testing.T) {
			a, err := harness.Ask(s, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, sub := range s.Subjects {
				for k, f := range s.Figures {
					if v := a.Values[i][k]; v < 0 || v > 1e7 || v == 0 && !strings.HasPrefix(f.Name, "CPU") {
						t.Errorf("%s, %s: %v %s", sub.Name, f.Name, v, f.Unit)
					}
				}
			}
		})
	}
}

// What the empty handler says is as long as what weir says, but for a few digits.
func TestConstant(t *testing.T) {
	q := scenario{keys: 1, limit: plenty, want: `"allowed":true`}
	l, err := q.open(services()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	c := l.callers[0]
	if err := c.ask(); err != nil {
		t.Fatal(err)
	}
	_, body, _ := bytes.Cut(c.answer, headEnd)
	body, _, _ = bytes.Cut(body, []byte("\n"))
	if d := len(body) + 1 - len(constant); d < -3 || d > 3 {
		t.Errorf("weir says %q, which is %d bytes longer than %q", body, d, constant)
	}
}

func TestSize(t *testing.T) {
	for _, tt := range []struct {
		answer string
		want   int
		ok     bool
	}{
		{"", -1, true},
		{"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n", -1, true},
		{"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n", 39 + 12, true},
		{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nDate: 9\r\n\r\nabc", 38 + 9 + 3, true},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 0, false},
	} {
		got, err := size([]byte(tt.answer))
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%q: %d, %v; want %d", tt.answer, got, err, tt.want)
		}
	}
}
