package golden

import (
	"os"
	"testing"
)

// watched is a test that may fail.
type watched struct {
	testing.TB
	problems int
}

func (w *watched) Errorf(string, ...any) { w.problems++ }

// TestCheck: what is as in the file passes, and what is not does not.
func TestCheck(t *testing.T) {
	if *update {
		t.Skip("what is not as in the file is written there")
	}
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("testdata", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("testdata/x.golden", []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for got, problems := range map[string]int{"one\n": 0, "two\n": 1, "": 1} {
		w := &watched{TB: t}
		if Check(w, "testdata/x.golden", []byte(got)); w.problems != problems {
			t.Errorf("%q has %d problems, want %d", got, w.problems, problems)
		}
	}
}
