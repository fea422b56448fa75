package measure

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/svg"
)

// WriteText writes a summary for people, with the service time beside the response time,
// so that the difference is seen.
func (r Report) WriteText(w io.Writer) error {
	var b bytes.Buffer
	r.writeCounts(&b)
	r.writeTimes(&b)
	r.writeNotes(&b)
	_, err := w.Write(b.Bytes())
	return err
}

func (r Report) writeCounts(b *bytes.Buffer) {
	if r.Target != "" {
		line(b, "target", r.Target)
	}
	line(b, "started", r.Started.Format(time.RFC3339)+", took "+r.took())
	if r.Connections > 0 {
		line(b, "connections", thousands(int64(r.Connections)))
	}
	line(b, "rate", r.rateText())
	line(b, "operations", thousands(r.Operations))
	line(b, "errors", r.errorText())
	if len(r.Codes) > 0 {
		line(b, "codes", r.codeText())
	}
	line(b, "received", thousands(r.Bytes)+" bytes")
}

func line(b *bytes.Buffer, name, value string) { fmt.Fprintf(b, "%-12s %s\n", name, value) }

func (r Report) took() string {
	took := strconv.FormatFloat(r.DurationS, 'f', 2, 64) + " s"
	if r.Interrupted {
		took += ", interrupted"
	}
	return took
}

func (r Report) rateText() string {
	if r.TargetRate == 0 {
		return whole(r.AchievedRate) + " per s, no target"
	}
	return fmt.Sprintf("%s per s, %s of the target of %s per s",
		whole(r.AchievedRate), percent(r.AchievedRate/r.TargetRate), whole(r.TargetRate))
}

func (r Report) errorText() string {
	if r.Errors == 0 {
		return "0"
	}
	return fmt.Sprintf("%s, %s of the operations", thousands(r.Errors), percent(float64(r.Errors)/float64(r.Operations)))
}

// codeText lists the codes, the most frequent first.
func (r Report) codeText() string {
	codes := slices.SortedFunc(maps.Keys(r.Codes), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Codes[b], r.Codes[a]), cmp.Compare(a, b))
	})
	words := make([]string, len(codes))
	for i, code := range codes {
		words[i] = fmt.Sprintf("%s: %s", cmp.Or(code, "(none)"), thousands(r.Codes[code]))
	}
	return strings.Join(words, ", ")
}

// writeTimes writes the table. All of it is in milliseconds, because 900 µs beside 1.1 s
// is easily read the wrong way round.
func (r Report) writeTimes(b *bytes.Buffer) {
	if r.Operations == 0 {
		return
	}
	s, q := r.ServiceMS, r.ResponseMS
	fmt.Fprintf(b, "\n%-12s %14s %14s\n", "", "service ms", "response ms")
	for _, row := range []struct {
		name              string
		service, response float64
	}{
		{"min", s.Min, q.Min},
		{"mean", s.Mean, q.Mean},
		{"p50", s.P50, q.P50},
		{"p90", s.P90, q.P90},
		{"p99", s.P99, q.P99},
		{"p99.9", s.P999, q.P999},
		{"p99.99", s.P9999, q.P9999},
		{"max", s.Max, q.Max},
	} {
		fmt.Fprintf(b, "%-12s %14s %14s\n", row.name, decimals(row.service), decimals(row.response))
	}
	fmt.Fprintf(b, "\nService counts from an operation's start, response from when it was due. Between\n"+
		"them operations waited: mean %s ms, p50 %s ms, p99 %s ms, max %s ms,\n%s s in total.\n",
		decimals(r.WaitMS.Mean), decimals(r.WaitMS.P50), decimals(r.WaitMS.P99), decimals(r.WaitMS.Max), decimals(r.WaitMS.Total/1000))
}

// writeNotes tells what the figures above leave out.
func (r Report) writeNotes(b *bytes.Buffer) {
	if r.Operations == 0 {
		b.WriteString("\nNo operation ended.\n")
	}
	if r.Unfinished > 0 {
		fmt.Fprintf(b, "\nDue but unfinished at the end: %s operations, which are in no figure above.\n", thousands(r.Unfinished))
	}
	if r.OldestUnfinishedMS > 0 {
		fmt.Fprintf(b, "The oldest that was begun had been due for %s.\n", svg.Duration(duration(r.OldestUnfinishedMS)))
	}
	if r.OverRange > 0 {
		fmt.Fprintf(b, "\nPercentiles count responses above 10 minutes as 10 minutes: %s operations.\n", thousands(r.OverRange))
	}
}

// thousands writes 1234567 as 1,234,567.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// decimals writes 1234.5678 as 1,234.568.
func decimals(f float64) string {
	s := strconv.FormatFloat(f, 'f', 3, 64)
	digits, fraction, _ := strings.Cut(s, ".")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return s // too long for commas
	}
	return thousands(n) + "." + fraction
}

// percent writes a share: 0.00012 as 0.012 %. A few are not none, and most are not all.
func percent(share float64) string {
	switch {
	case share > 0 && share < 0.00001:
		return "under 0.001 %"
	case share > 0.99999 && share < 1:
		return "over 99.999 %"
	}
	return strconv.FormatFloat(round(share*100, 3), 'f', -1, 64) + " %"
}
