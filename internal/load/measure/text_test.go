package measure

import (
	"errors"
	"math"
	"testing"
)

func TestNumbers(t *testing.T) {
	tests := []struct{ got, want string }{
		{thousands(0), "0"},
		{thousands(999), "999"},
		{thousands(1000), "1,000"},
		{thousands(-1234567), "-1,234,567"},
		{thousands(math.MinInt64), "-9,223,372,036,854,775,808"},
		{decimals(1234.5678), "1,234.568"},
		{decimals(0.0004), "0.000"},
		{decimals(1e30), "1000000000000000019884624838656.000"},
		{percent(0), "0 %"},
		{percent(0.00012), "0.012 %"},
		{percent(1e-9), "under 0.001 %"},
		{percent(0.9999999), "over 99.999 %"},
		{percent(1), "100 %"},
		{percent(1.002), "100.2 %"},
		{whole(0.5), "0.5"},
		{whole(4998.6), "4,999"},
		{whole(999_999.4), "999,999"},
		{whole(999_999.6), "1M"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%q, want %q", tt.got, tt.want)
		}
	}
}

// full is a writer without room.
type full struct{}

var errFull = errors.New("full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestWriteTextFails(t *testing.T) {
	if err := (Report{}).WriteText(full{}); !errors.Is(err, errFull) {
		t.Errorf("error = %v", err)
	}
}
