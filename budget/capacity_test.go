package budget

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestWarnTooCostly: F1.3: costs that can never be admitted are known when the account is configured.
func TestWarnTooCostly(t *testing.T) {
	var log bytes.Buffer
	c, err := FromEnv(nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	newAccount(t, c)
	for _, want := range []string{"class=backfill at_most=200", "alchemy_simulateExecution"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no warning with %s:\n%s", want, log.String())
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines, want one", n)
	}
	log.Reset()
	newAccount(t, Config{Name: "main", Preset: "alchemy-free", Logger: c.Logger})
	if strings.Contains(log.String(), "WARN") || !strings.Contains(log.String(), "at_most=500") {
		t.Errorf("what the preset does not admit is a note:\n%s", log.String())
	}
}
