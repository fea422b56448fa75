package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/golden"
)

// Beside each file of testdata/envoy is what becomes of it: ours and the notes, or the
// problems.
func TestImportEnvoy(t *testing.T) {
	names, err := filepath.Glob("testdata/envoy/*.yaml")
	if err != nil || len(names) < 6 {
		t.Fatal(len(names), err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			ours, notes, err := ImportEnvoy(filepath.Base(name), data)
			if err != nil {
				fmt.Fprintln(&b, err)
			}
			b.Write(ours)
			for _, n := range notes {
				fmt.Fprintln(&b, "#", n)
			}
			golden.Check(t, strings.TrimSuffix(name, ".yaml")+".golden", []byte(b.String()))
			if err != nil {
				return
			}
			if _, err := Parse("ours.yaml", ours, nil, nil); err != nil {
				t.Error(err)
			}
		})
	}
}
