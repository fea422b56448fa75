package weirhttp

import (
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC)

func TestParseRetryAfter(t *testing.T) {
	const most = time.Hour
	tests := []struct {
		value string
		want  time.Duration
		ok    bool
	}{
		{"0", 0, true},
		{"7", 7 * time.Second, true},
		{"007", 7 * time.Second, true},
		{" \t7\t ", 7 * time.Second, true},
		{"3600", most, true},
		{"3601", most, true},
		{"9223372037", most, true}, // more nanoseconds than there are
		{"9223372036854775808", most, true},
		{strings.Repeat("9", 1000), most, true},
		{"Sun, 17 May 2026 12:00:30 GMT", 30 * time.Second, true},
		{"Sunday, 17-May-26 12:00:30 GMT", 30 * time.Second, true},
		{"Sun May 17 12:00:30 2026", 30 * time.Second, true},
		{"Sun, 17 May 2026 12:00:00 GMT", 0, true},
		{"Sun, 17 May 2026 11:59:59 GMT", 0, true},
		{"Thu, 01 Jan 0001 00:00:00 GMT", 0, true},
		{"Fri, 31 Dec 9999 23:59:59 GMT", most, true},
		{"", 0, false},
		{" ", 0, false},
		{"-1", 0, false},
		{"+1", 0, false},
		{"1.5", 0, false},
		{"1e3", 0, false},
		{"0x10", 0, false},
		{"7s", 0, false},
		{"7, 8", 0, false},
		{"٧", 0, false}, // a digit, but not of HTTP
		{"7\n", 0, false},
		{"Sun, 17 May 2026 12:00:30", 0, false},
		{"Sun, 17 May 2026 25:00:30 GMT", 0, false},
		{"2026-05-17T12:00:30Z", 0, false},
		{"soon", 0, false},
	}
	for _, tt := range tests {
		if got, ok := ParseRetryAfter(tt.value, noon, most); got != tt.want || ok != tt.ok {
			t.Errorf("%q: got %v, %v, want %v, %v", tt.value, got, ok, tt.want, tt.ok)
		}
	}
}

func TestRetryAfterIsCapped(t *testing.T) {
	tests := []struct {
		most, want time.Duration
	}{
		{0, DefaultMostRetryAfter},
		{-1, DefaultMostRetryAfter},
		{1, 1},
		{1500 * time.Millisecond, 1500 * time.Millisecond},
		{1<<63 - 1, 9223372036 * time.Second},
	}
	for _, tt := range tests {
		if got, ok := ParseRetryAfter("9223372036", noon, tt.most); got != tt.want || !ok {
			t.Errorf("most %v: got %v, %v, want %v", tt.most, got, ok, tt.want)
		}
	}
}

func FuzzParseRetryAfter(f *testing.F) {
	for _, s := range []string{"7", "-1", "1.5", "99999999999999999999", "Sun, 17 May 2026 12:00:30 GMT", "Sunday, 17-May-26 12:00:30 GMT"} {
		f.Add(s, int64(time.Hour))
	}
	f.Fuzz(func(t *testing.T, value string, most int64) {
		d, ok := ParseRetryAfter(value, noon, time.Duration(most))
		longest := time.Duration(most)
		if most <= 0 {
			longest = DefaultMostRetryAfter
		}
		if d < 0 || d > longest || !ok && d != 0 {
			t.Errorf("%q, at most %v: %v, %v", value, longest, d, ok)
		}
		if padded, same := ParseRetryAfter(" "+value+"\t", noon, time.Duration(most)); padded != d || same != ok {
			t.Errorf("%q: %v, %v, with spaces around it %v, %v", value, d, ok, padded, same)
		}
		if ok && !isDigits(strings.Trim(value, " \t")) && !strings.Contains(value, ":") {
			t.Errorf("%q is neither a number nor a date", value)
		}
	})
}
