package svg

import (
	"math"
	"strconv"
	"time"
)

// Number writes three significant digits of v at most: 0.5, 1, 10, 100, 1k, 12.5k, 1M.
// What is no number becomes "?".
func Number(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "?"
	}
	v = significant(v)
	for _, unit := range []struct {
		size float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(v) >= unit.size {
			return plain(v/unit.size) + unit.name
		}
	}
	return plain(v)
}

// Duration writes three significant digits of d at most, in one unit: 10 µs, 1.25 ms,
// 90 s.
func Duration(d time.Duration) string {
	v := significant(float64(d))
	switch abs := math.Abs(v); {
	case abs == 0:
		return "0 s"
	case abs < 1e3:
		return plain(v) + " ns"
	case abs < 1e6:
		return plain(v/1e3) + " µs"
	case abs < 1e9:
		return plain(v/1e6) + " ms"
	}
	return plain(v/1e9) + " s"
}

// significant rounds v to three digits. The unit is chosen afterwards, so that 999.9
// becomes 1k and not 1000.
func significant(v float64) float64 {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'e', 2, 64), 64) // it can read what it wrote
	return v
}

// plain writes v without an exponent. Dividing by the unit may have left a last digit
// that is not meant, so the three digits are taken once more.
func plain(v float64) string {
	return strconv.FormatFloat(significant(v)+0, 'f', -1, 64) // + 0 turns -0 into 0
}
