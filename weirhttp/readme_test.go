package weirhttp

import (
	"os"
	"strings"
	"testing"
)

// TestTwentyLines holds the promise that a service with two limits takes 20 lines, and that
// the README shows it as it is.
func TestTwentyLines(t *testing.T) {
	program, err := os.ReadFile("../examples/limited/main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(program), "\n") // after the package comment
	if n := strings.Count(text, "\n"); n > 20 {
		t.Errorf("%d lines, want at most 20", n)
	}
	if !strings.Contains(string(readme), "```go\n"+text+"```") {
		t.Error("README.md does not show examples/limited/main.go as it is")
	}
}
