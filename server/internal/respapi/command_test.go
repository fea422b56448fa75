package respapi

import (
	"math/rand/v2"
	"strconv"
	"testing"
)

// Integers are those of strconv, long and short.
func TestParseInt(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	check := func(text string) {
		t.Helper()
		want, err := strconv.ParseInt(text, 10, 64)
		if got, ok := parseInt([]byte(text)); ok != (err == nil) || ok && got != want {
			t.Errorf("%q: %d, %v; want %d, %v", text, got, ok, want, err)
		}
	}
	for _, text := range []string{
		"", "-", "+", "0", "-0", "+0", "007", "+5", "--5", "+-5", " 5", "5 ", "1_000", "0x5", "1e3", "5.0",
		"999999999999999999", "+99999999999999999", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "+0000000000000000000005",
	} {
		check(text)
	}
	for range 100_000 {
		text := make([]byte, rng.IntN(24))
		for i := range text {
			text[i] = "0123456789+-"[rng.IntN(12)]
			if i > 0 && rng.IntN(20) > 0 {
				text[i] = byte('0' + rng.IntN(10))
			}
		}
		check(string(text))
	}
}
