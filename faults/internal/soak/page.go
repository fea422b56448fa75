package soak

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"
)

// Page is what a soak writes: a table of samples, slopes, and a picture of the memory.
type Page struct {
	Date    time.Time
	Machine string // such as "2 cores, go1.26.8, linux/amd64"
	Series  []*Series
	Race    time.Duration // for how long the daemons with the race detector ran
	Rows    []string      // of the table of what must hold, made by Row
}

// Row is a line of the table of what must hold.
func Row(what string, value float64, must string, met bool) string {
	verdict := "yes"
	if !met {
		verdict = "**no**"
	}
	return fmt.Sprintf("| %s | %.2f | %s | %s |", what, value, must, verdict)
}

// The lines between which a page has what a soak writes.
const (
	Begin = "<!-- Written by `make soak` from here on; do not edit. -->"
	End   = "<!-- Written by `make soak` up to here. -->"
)

// WriteInto replaces what is between Begin and End in a file.
func (p *Page) WriteInto(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(text, []byte(Begin))
	_, after, ended := bytes.Cut(rest, []byte(End))
	if !ok || !ended {
		return fmt.Errorf("soak: %s has no place for the table: %q and %q", file, Begin, End)
	}
	out := append([]byte(nil), before...)
	out = append(out, Begin+"\n\n"+p.Markdown()+"\n"+End...)
	return os.WriteFile(file, append(out, after...), 0o644)
}

// Markdown returns the page.
func (p *Page) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| | |\n|---|---|\n| Date | %s |\n| Machine | %s |\n| Length | %s, then %s with the race detector |\n",
		p.Date.UTC().Format(time.DateOnly), p.Machine, minutes(p.length()), minutes(p.Race))
	for _, s := range p.Series {
		fmt.Fprintf(&b, "| Calls, %s | %.0f per second |\n", s.Name, s.Rate())
	}
	b.WriteString("\n![The memory of both daemons over the time of the soak](soak.svg)\n\n")
	b.WriteString("| | Measured | Must hold | Met |\n|---|---|---|---|\n" + strings.Join(p.Rows, "\n") + "\n\n")
	p.samples(&b)
	return b.String()
}

// tableRows is how many samples the table has at most, the first and the last included.
const tableRows = 13

// samples writes the table of samples: for each process its RSS and heap in MiB, its
// goroutines and its open files.
func (p *Page) samples(b *strings.Builder) {
	b.WriteString("| after |")
	line := "|---|"
	for _, s := range p.Series {
		fmt.Fprintf(b, " %s: RSS, MiB | heap, MiB | goroutines | open files |", s.Name)
		line += "--:|--:|--:|--:|"
	}
	b.WriteString("\n" + line + "\n")
	n := p.least()
	for row := range min(tableRows, n) {
		i := row * (n - 1) / max(1, min(tableRows, n)-1)
		fmt.Fprintf(b, "| %s |", minutes(p.Series[0].Samples[i].At))
		for _, s := range p.Series {
			x := s.Samples[i]
			fmt.Fprintf(b, " %.1f | %.1f | %.0f | %.0f |", RSS(x), Heap(x), x.Goroutines, x.FDs)
		}
		b.WriteString("\n")
	}
}

// least returns how many samples all series have.
func (p *Page) least() int {
	n := 0
	for i, s := range p.Series {
		if i == 0 || len(s.Samples) < n {
			n = len(s.Samples)
		}
	}
	return n
}

// length is the time of the last sample.
func (p *Page) length() (last time.Duration) {
	for _, s := range p.Series {
		if n := len(s.Samples); n > 0 {
			last = max(last, s.Samples[n-1].At)
		}
	}
	return last
}

// minutes writes a time as people say it: "12 min", or "40 s" where it is short.
func minutes(d time.Duration) string {
	if d < 2*time.Minute {
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return fmt.Sprintf("%.1f min", d.Minutes())
}
