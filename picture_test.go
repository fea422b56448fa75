package weir_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

var update = flag.Bool("update", false, "write the pictures in docs anew")

// pictured are the limits of docs/algorithms.svg: ten a second, counted in
// every way.
var pictured = []struct {
	name  string
	limit weir.Limit
}{
	{"GCRA, burst 10", weir.Limit{Rate: 10, Per: weir.Every(time.Second)}},
	{"GCRA, burst 1", weir.Limit{Rate: 10, Per: weir.Every(time.Second), Burst: 1}},
	{"FixedWindow", weir.Limit{Rate: 10, Per: weir.Every(time.Second), Algorithm: weir.FixedWindow}},
	{"AnchoredWindow", weir.Limit{Rate: 10, Per: weir.Every(time.Second), Algorithm: weir.AnchoredWindow}},
	{"SlidingWindow", weir.Limit{Rate: 10, Per: weir.Every(time.Second), Algorithm: weir.SlidingWindow}},
	{"SlidingLog", weir.Limit{Rate: 10, Per: weir.Every(time.Second), Algorithm: weir.SlidingLog}},
}

// traffic is when requests come: a rush just before a second ends and another
// just after, then a steady stream that is too fast.
func traffic() []time.Duration {
	var at []time.Duration
	for i := range 12 {
		at = append(at, 800*time.Millisecond+time.Duration(i)*15*time.Millisecond)
	}
	for i := range 12 {
		at = append(at, 1010*time.Millisecond+time.Duration(i)*15*time.Millisecond)
	}
	for t := 1300 * time.Millisecond; t < 4*time.Second; t += 50 * time.Millisecond {
		at = append(at, t)
	}
	return at
}

// strip is how one limit answered the traffic.
type strip struct {
	name     string
	admitted []bool
	total    int
	most     int // in any second
}

func answer(t *testing.T, name string, limit weir.Limit) strip {
	start := weir.Instant(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	lim, err := weir.New(limit)
	if err != nil {
		t.Fatal(err)
	}
	s := strip{name: name}
	var taken []time.Duration
	for _, at := range traffic() {
		ok := lim.TakeAt(start.Add(at), 1).Allowed
		s.admitted = append(s.admitted, ok)
		if !ok {
			continue
		}
		taken = append(taken, at)
		s.total++
		within := 0
		for _, o := range taken {
			if o > at-time.Second {
				within++
			}
		}
		s.most = max(s.most, within)
	}
	return s
}

// The picture in docs/algorithms.md is drawn from what the code decides; this
// test fails when the two part.
func TestPicture(t *testing.T) {
	var strips []strip
	for _, p := range pictured {
		strips = append(strips, answer(t, p.name, p.limit))
	}
	got := draw(strips)
	if err := wellFormed(got); err != nil {
		t.Fatal(err)
	}
	const file = "docs/algorithms.svg"
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s no longer shows what the limits do: go test -run TestPicture -update .", file)
	}
}

func wellFormed(doc []byte) error {
	for d := xml.NewDecoder(bytes.NewReader(doc)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// draw makes one row of marks for each strip: tall and filled where a request
// was admitted, short and pale where it was refused.
func draw(strips []strip) []byte {
	const left, top, row, second = 150, 56, 54, 170
	x := func(at time.Duration) float64 { return left + at.Seconds()*second }
	var b strings.Builder
	height := top + len(strips)*row + 34
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 %d" font-family="system-ui, sans-serif" font-size="13">`+"\n", height)
	b.WriteString(`<style>.ink{fill:#1c2730}.quiet{fill:#5d6f7b}.line{stroke:#c9d4da}.yes{fill:#0a7d55}.no{fill:#d9534f;opacity:.55}` +
		`@media(prefers-color-scheme:dark){.ink{fill:#e6eef2}.quiet{fill:#9db0bb}.line{stroke:#33444e}.yes{fill:#3ecf97}.no{fill:#ff8a80}}</style>` + "\n")
	b.WriteString(`<text class="ink" x="10" y="22" font-weight="600">The same requests, ten a second, counted in six ways</text>` + "\n")
	b.WriteString(`<rect class="yes" x="440" y="10" width="3" height="16"/><text class="quiet" x="450" y="22">admitted</text>` +
		`<rect class="no" x="530" y="17" width="3" height="9"/><text class="quiet" x="540" y="22">refused</text>` +
		`<text class="quiet" x="950" y="22" text-anchor="end">most in any second</text>` + "\n")
	for s := range 5 {
		at := x(time.Duration(s) * time.Second)
		fmt.Fprintf(&b, `<line class="line" x1="%.1f" y1="38" x2="%.1f" y2="%d" stroke-dasharray="3 4"/><text class="quiet" x="%.1f" y="%d" text-anchor="middle">%d s</text>`+"\n",
			at, at, height-26, at, height-8, s)
	}
	for i, s := range strips {
		base := top + i*row + 34
		fmt.Fprintf(&b, `<text class="ink" x="10" y="%d">%s</text><text class="ink" x="950" y="%d" text-anchor="end" font-weight="600">%d</text>`+"\n", base-6, s.name, base-6, s.most)
		for j, at := range traffic() {
			class, tall := "no", 9
			if s.admitted[j] {
				class, tall = "yes", 30
			}
			fmt.Fprintf(&b, `<rect class="%s" x="%.1f" y="%d" width="3" height="%d"/>`, class, x(at)-1.5, base-tall, tall)
		}
		b.WriteString("\n")
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}
