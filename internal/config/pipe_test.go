//go:build unix

package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestNamedPipe refuses files that would block a reload for good.
func TestNamedPipe(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "costs.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "weir.yaml")
	if err := os.WriteFile(file, []byte("budgets: {a: {limits: [{rate: 5, per: 1s, unit: cu}], costs: {table: costs.json}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file, nil); err == nil || !strings.Contains(err.Error(), "budgets.a.costs.table") || !strings.Contains(err.Error(), "named pipe") {
		t.Errorf("%v, want an error about the pipe", err)
	}
}
