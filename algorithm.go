package weir

import "fmt"

// Algorithm is how a limit counts. Package algo explains each with its bound,
// its cost and an example.
type Algorithm uint8

// The algorithms. Auto is GCRA for durations and FixedWindow for calendars.
const (
	Auto           Algorithm = iota
	GCRA                     // a rate and a burst, to the nanosecond
	TokenBucket              // another name of GCRA: the same decisions
	FixedWindow              // so many per clock or calendar window
	AnchoredWindow           // so many per window that opens with the first charge
	SlidingWindow            // so many in any period, estimated from two counters
	SlidingLog               // so many in any period, exactly; for small limits
	DualWindow               // windows of a second, a minute or, as two limits, both; in one 64-bit word
	Concurrency              // so many at once; taken by Reserve only
	Lending                  // a rate and a burst, shared by classes that lend to each other; see Limit.Classes
)

var algorithmNames = [...]string{
	"auto", "gcra", "token_bucket", "fixed_window", "anchored_window",
	"sliding_window", "sliding_log", "dual_window", "concurrency", "lending",
}

// String returns the name that configurations use, such as "token_bucket".
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// parseAlgorithm is the inverse of String.
func parseAlgorithm(name string) (Algorithm, error) {
	for i, n := range algorithmNames {
		if n == name {
			return Algorithm(i), nil
		}
	}
	return 0, fmt.Errorf("weir: no algorithm is called %q; there are %q", name, algorithmNames[:])
}

// MarshalText returns String.
func (a Algorithm) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (a *Algorithm) UnmarshalText(text []byte) (err error) {
	*a, err = parseAlgorithm(string(text))
	return err
}
