// Package golden compares what tests produce with files, and writes these files when a test
// is run with -update.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write golden files instead of comparing them")

// Updating says whether files are written rather than compared.
func Updating() bool { return *update }

// Check compares got with a file, whose path is relative to the caller's package.
func Check(t testing.TB, file string, got []byte) {
	t.Helper()
	if *update {
		write(t, file, got)
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got), go test -update writes it:\n%s", file, diff)
	}
}

func write(t testing.TB, file string, got []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, got, 0o644); err != nil { //nolint:gosec // meant to be read
		t.Fatal(err)
	}
}
