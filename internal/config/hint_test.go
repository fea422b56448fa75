package config

import (
	"strings"
	"testing"
)

// What people write for a limit is answered with what to write.
func TestHints(t *testing.T) {
	for text, want := range map[string]string{
		"{rate: 5, per: hour}":        `per: "hour" is not a period: write 1h`,
		"{rate: 5, per: Minutes}":     `per: "Minutes" is not a period: write 1m`,
		"{rate: 5, per: 2 days}":      `per: "2 days" is not a period: write 48h`,
		"{rate: 5, per: 1d}":          `per: "1d" is not a period: write day`,
		"{rate: 5, per: 60}":          `per: 60 is not a period: write 60s`,
		"{rate: 5, per: s}":           `per: "s" is not a period: write 1s`,
		"{rate: 5, per: fortnight}":   `per: "fortnight" must be a duration such as 1s or 1m30s, or day, week, month or year`,
		"{rate: 100/s}":               `rate: "100/s" is a rate and a period: write {rate: 100, per: 1s}`,
		"{rate: \"5 per minute\"}":    `rate: "5 per minute" is a rate and a period: write {rate: 5, per: 1m}`,
		"{rate: 10r/s, per: 1s}":      `rate: "10r/s" is a rate and a period: write {rate: 10, per: 1s}`,
		"{rate: 7/30s, per: 1s}":      `rate: "7/30s" is a rate and a period: write {rate: 7, per: 30s}`,
		"{rate: 1000/day, per: day}":  `rate: "1000/day" is a rate and a period: write {rate: 1000, per: day}`,
		"{rate: 0.5, per: 1s}":        `rate: "0.5" is not a whole number: for 0.5 per second, write {rate: 1, per: 2s}`,
		"{rate: 1.25, per: 1s}":       `rate: "1.25" is not a whole number: for 1.25 per second, write {rate: 5, per: 4s}`,
		"{rate: 100.0, per: 1s}":      `rate: "100.0" is not a whole number in digits: write 100`,
		"{rate: 0.5/min, per: 1s}":    `rate: "0.5/min" is a rate and a period: write {rate: 1, per: 2m}`,
		"100/s":                       `is a single value: must be {rate: 100, per: 1s}`,
		"{rate: 0/s, per: 1s}":        `rate: "0/s" must be a whole number in digits, such as 1000`,
		"{rate: 1/0s, per: 1s}":       `rate: "1/0s" must be a whole number in digits, such as 1000`,
		"{rate: 99999999999999999/s}": `rate: "99999999999999999/s" must be a whole number in digits, such as 1000`,
	} {
		_, err := Parse("weir.yaml", []byte("policies: {api: {limits: ["+text+"]}}"), nil, nil)
		if err == nil || !strings.Contains(err.Error(), want+"\n") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"{api: 100/s}":           "policies.api: is a single value: must be {limits: [{rate: 100, per: 1s}]}\n",
		"{api: {limits: 5/min}}": "policies.api.limits: is a single value: must be [{rate: 5, per: 1m}]\n",
		"{api: {limits: [{rate: 5, per: 1s}], overrides: {a: 9/s}}}": "policies.api.overrides.a: is a single value: must be {limits: [{rate: 9, per: 1s}]}\n",
	} {
		_, err := Parse("weir.yaml", []byte("policies: "+text), nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
