package harness

import (
	"strconv"
	"strings"
	"time"
)

// Percentile returns the least of the sorted times that is no less than so many
// ten-thousandths of them, in nanoseconds.
func Percentile(sorted []time.Duration, tenThousandths int) float64 {
	rank := (len(sorted)*tenThousandths + 9999) / 10_000
	return float64(sorted[rank-1])
}

// Grouped writes 1000000 as 1,000,000.
func Grouped(n int) string {
	s := strconv.Itoa(n)
	var b strings.Builder
	for i, digit := range s {
		if i > 0 && (len(s)-i)%3 == 0 && s[i-1] != '-' {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	return b.String()
}

// Goroutines names so many: "1 goroutine" or "32 goroutines".
func Goroutines(n int) string {
	if n == 1 {
		return "1 goroutine"
	}
	return Grouped(n) + " goroutines"
}
