package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/golden"
)

// Each file in testdata/broken has something wrong with it, and beside it what is said
// about that. No secret of theirs may be in there: they all have CANARY in them.
func TestBroken(t *testing.T) {
	names, err := filepath.Glob("testdata/broken/*.yaml")
	if err != nil || len(names) < 25 {
		t.Fatal(len(names), err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Parse(filepath.Base(name), data, environOf(string(data)), fakeFiles)
			bad, ok := errors.AsType[*Error](err)
			if !ok {
				t.Fatalf("the error is %v, not an *Error", err)
			}
			if strings.Contains(err.Error(), "CANARY") {
				t.Errorf("a secret is shown:\n%v", err)
			}
			for _, p := range bad.Problems {
				if strings.ContainsAny(p.Text, "\n\x00") || p.Text == "" || p.File == "" {
					t.Errorf("not a sentence: %+v", p)
				}
			}
			golden.Check(t, strings.TrimSuffix(name, ".yaml")+".golden", []byte(err.Error()+"\n"))
		})
	}
}

// environOf returns the environment that the comments of a test's file define.
func environOf(data string) []string {
	environ := []string{"HOME=/home/weir"}
	for line := range strings.Lines(data) {
		if rest, ok := strings.CutPrefix(line, "# env: "); ok {
			environ = append(environ, strings.TrimSuffix(rest, "\n")+env(rest))
		}
	}
	return environ
}

// env lets a line be the name of a variable alone.
func env(line string) string {
	if strings.Contains(line, "=") {
		return ""
	}
	return "=1"
}

// fakeFiles are the files of tests.
func fakeFiles(name string) ([]byte, fs.FileMode, error) {
	switch filepath.Base(name) {
	case "empty":
		return []byte("\n"), 0o600, nil
	case "table.json":
		return []byte(`{"name": "t", "version": 0, "date": "2026-11-18", "source": "test", "units": {"cu": "x"}, "batch": "sum", "failed_requests": "free", "unknown": "refuse", "methods": {"m": {}}}`), 0o600, nil
	case "nonsense.json":
		return []byte(`{"name": `), 0o600, nil
	case "both":
		return []byte("CANARY-from-a-file-0123456789-0123456789\n"), 0o600, nil
	}
	return nil, 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}
