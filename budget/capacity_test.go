package budget

import (
	"bytes"
	"fmt"
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
	for _, want := range []string{"refused in a class", "class=backfill at_most=200", `methods="eth_sendRawTransaction, alchemy_getTransactionReceipts, `} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no warning with %s:\n%s", want, log.String())
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines, want one", n)
	}
	log.Reset()
	newAccount(t, Config{Name: "main", Preset: "alchemy-free", Logger: c.Logger})
	if strings.Contains(log.String(), "WARN") || !strings.Contains(log.String(), "class=backfill at_most=500") {
		t.Errorf("what the preset does not admit is a note:\n%s", log.String())
	}
	log.Reset()
	c.Classes = []Class{}
	newAccount(t, c)
	if !strings.Contains(log.String(), `class="" at_most=500`) || strings.Contains(log.String(), "in a class") {
		t.Errorf("there are no classes:\n%s", log.String())
	}
}

// What a configuration has changed is logged, and not what was so before.
func TestWarnTooCostlyOnce(t *testing.T) {
	var log bytes.Buffer
	config := func(rate int) Config {
		c, err := FromEnv([]string{fmt.Sprint("ALCHEMY_CU_PER_SECOND=", rate)})
		if err != nil {
			t.Fatal(err)
		}
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		return c
	}
	a := newAccount(t, config(500))
	for _, tt := range []struct{ rate, lines int }{{500, 0}, {500, 0}, {400, 1}, {400, 0}, {500, 1}, {50_000, 0}, {500, 1}} {
		log.Reset()
		if err := a.Replace(config(tt.rate)); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "always refused in a class"); n != tt.lines {
			t.Errorf("rate %d: %d lines, want %d: %s", tt.rate, n, tt.lines, log.String())
		}
	}
}
