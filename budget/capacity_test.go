package budget

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// TestWarnTooCostly: F1.3: costs that can never be admitted are known when the account is configured.
func TestWarnTooCostly(t *testing.T) {
	var log bytes.Buffer
	c, err := FromEnv(nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	newAccount(t, c)
	for _, want := range []string{"more than the class can ever take", "class=backfill at_most=200", `methods="eth_sendRawTransaction, alchemy_getTransactionReceipts, `} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no warning with %s:\n%s", want, log.String())
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines, want one", n)
	}
	log.Reset()
	preset := Config{Name: "main", Preset: "alchemy-free", Logger: c.Logger}
	day := ruleset.Limit{Unit: "cu", Limit: weir.Limit{Name: "day", Rate: 1_000_000, Per: weir.Calendar(weir.Day, time.UTC)}}
	for _, tt := range []struct {
		what  string
		set   func(*Config)
		lines string
	}{
		{"the preset as it is", func(*Config) {}, "level=DEBUG msg=… class=backfill at_most=500"},
		{"another limit", func(c *Config) { c.Limits = []ruleset.Limit{day} }, "level=DEBUG msg=… class=backfill at_most=500"},
		{"other classes", func(c *Config) { c.Classes = []Class{{Name: "realtime", Share: 80}, {Name: "backfill", Share: 20}} }, "level=INFO msg=… class=backfill at_most=250"},
	} {
		log.Reset()
		changed := preset
		tt.set(&changed)
		newAccount(t, changed)
		line := log.String()
		_, line, _ = strings.Cut(line, " ")
		level, _, _ := strings.Cut(line, " msg=")
		_, class, _ := strings.Cut(line, " limit=main ")
		class, _, _ = strings.Cut(class, " methods=")
		if got := level + " msg=… " + class; got != tt.lines {
			t.Errorf("%s: %q, want %q:\n%s", tt.what, got, tt.lines, log.String())
		}
	}
	log.Reset()
	c.Classes = []Class{}
	newAccount(t, c)
	if !strings.Contains(log.String(), `class="" at_most=500`) || strings.Contains(log.String(), "the class") {
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
		if n := strings.Count(log.String(), "more than the class can ever take"); n != tt.lines {
			t.Errorf("rate %d: %d lines, want %d: %s", tt.rate, n, tt.lines, log.String())
		}
	}
}
