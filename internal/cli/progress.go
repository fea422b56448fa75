package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/weirlimit/weir/internal/load/measure"
)

// progress writes the progress of a long run: on a terminal it rewrites one line,
// otherwise it adds a line every few seconds.
type progress struct {
	out      io.Writer
	total    time.Duration
	every    time.Duration
	terminal bool
	quiet    bool
}

func newProgress(out io.Writer, total time.Duration, quiet bool) *progress {
	p := &progress{out: out, total: total, every: 5 * time.Second, quiet: quiet}
	if isTerminal(out) {
		p.terminal, p.every = true, 200*time.Millisecond
	}
	return p
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (p *progress) show(s measure.Snapshot) {
	if p.quiet {
		return
	}
	line := measure.Line(s, p.total)
	if !p.terminal {
		fmt.Fprintln(p.out, line)
		return
	}
	fmt.Fprintf(p.out, "\r\x1b[K%s", line) // to the beginning, and erase what was there
}

// end erases the line.
func (p *progress) end() {
	if p.terminal && !p.quiet {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
