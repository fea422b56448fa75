package svg

import (
	"math"
	"testing"
	"time"
)

func TestNumber(t *testing.T) {
	tests := []struct {
		v    float64
		want string
	}{
		{0, "0"},
		{0.30000000000000004, "0.3"},
		{0.0001, "0.0001"},
		{1, "1"},
		{10, "10"},
		{100, "100"},
		{999.4, "999"},
		{999.9, "1k"},
		{1000, "1k"},
		{1234, "1.23k"},
		{10_000, "10k"},
		{999_999, "1M"},
		{1e6, "1M"},
		{2.5e9, "2.5G"},
		{7e12, "7T"},
		{7e15, "7000T"},
		{-1500, "-1.5k"},
		{math.Copysign(0, -1), "0"},
		{math.NaN(), "?"},
		{math.Inf(-1), "?"},
	}
	for _, tt := range tests {
		if got := Number(tt.v); got != tt.want {
			t.Errorf("Number(%v) = %q, want %q", tt.v, got, tt.want)
		}
	}
}

func TestDuration(t *testing.T) {
	tests := []struct {
		d    time.Duration
		want string
	}{
		{0, "0 s"},
		{1, "1 ns"},
		{999, "999 ns"},
		{10 * time.Microsecond, "10 µs"},
		{999_999, "1 ms"},
		{time.Millisecond, "1 ms"},
		{1_234_567, "1.23 ms"},
		{time.Second, "1 s"},
		{90 * time.Second, "90 s"},
		{10 * time.Minute, "600 s"},
		{-time.Millisecond, "-1 ms"},
	}
	for _, tt := range tests {
		if got := Duration(tt.d); got != tt.want {
			t.Errorf("Duration(%v) = %q, want %q", tt.d, got, tt.want)
		}
	}
}
