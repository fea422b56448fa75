package guard

// A matcher finds the pattern that applies to an endpoint. It is immutable. The cost of a lookup
// depends on the length of the path, not on the number of patterns.
type matcher struct{}

// A patternError says which pattern cannot be used, and why.
type patternError struct {
	index   int // of the pattern
	problem string
}

// newMatcher compiles patterns. It returns every problem.
func newMatcher(patterns []string) (*matcher, []patternError) { return &matcher{}, nil }

// find returns the index of the most specific pattern that matches, -1 if none does.
func (m *matcher) find(method, path string) int { return -1 }
