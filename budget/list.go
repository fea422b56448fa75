package budget

import "strings"

// IsList reports whether the lines of a field, such as RateLimit, are a list of strings or tokens with parameters (RFC 9651).
// ParseView reads nothing else.
func IsList(lines []string) bool {
	_, ok := parseList(strings.Join(lines, ", "))
	return ok
}
