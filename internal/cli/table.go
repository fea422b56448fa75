package cli

import (
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// table writes rows with aligned columns, and shows what is in them as visible does. The first row is
// the header.
func table(w io.Writer, rows [][]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				io.WriteString(t, "\t")
			}
			io.WriteString(t, visible(cell))
		}
		io.WriteString(t, "\n")
	}
	t.Flush()
}

// visible returns a text that can be shown on a terminal: one with control characters, which callers
// may choose, is quoted.
func visible(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// named returns a text that can be shown, and "-" if there is none.
func named(text string) string {
	if text == "" {
		return "-"
	}
	return visible(text)
}

// millis returns a duration in milliseconds as text. -1 is never.
func millis(ms int64) string {
	if ms < 0 {
		return "never"
	}
	return (time.Duration(ms) * time.Millisecond).String()
}

func number(n int64) string { return strconv.FormatInt(n, 10) }
