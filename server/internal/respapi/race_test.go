//go:build race

package respapi

// lighter returns fewer under the race detector, which is slow.
func lighter(n int) int { return n / 20 }
