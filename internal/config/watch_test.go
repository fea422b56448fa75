package config

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	withLevel = "log: {level: %s}\n"
	patience  = 30 * time.Second // far more than is needed
)

// watching is a running Watch. What it does comes in a channel.
type watching struct {
	t    *testing.T
	does chan string // the level that a reload has found, "broken", or "idle"
}

// startWatch starts a Watch that looks only if the system tells it to.
func startWatch(t *testing.T, name string, prepare func(*watch)) *watching {
	t.Helper()
	c, err := Load(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	out := &watching{t: t, does: make(chan string, 1000)}
	w := &watch{log: slog.New(slog.DiscardHandler), every: time.Hour, seen: c.loaded}
	w.idle = func() { out.does <- "idle" }
	w.reload = func() (*Config, error) {
		c, err := Load(name, nil)
		if err != nil {
			out.does <- "broken"
			return nil, err
		}
		out.does <- strings.ToLower(c.File.Log.Level.String())
		return c, nil
	}
	run := w.watch
	if prepare != nil {
		prepare(w)
		run = w.run
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { run(ctx) })
	t.Cleanup(func() { stop(); wg.Wait() })
	return out
}

// until waits for a reload that finds want, and then until there is nothing more to do,
// so that only another change has an effect.
func (w *watching) until(want string) {
	w.t.Helper()
	w.next(want)
	w.next("idle")
}

func (w *watching) next(want string) {
	w.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case got := <-w.does:
			if got == want {
				return
			}
		case <-timeout:
			w.t.Fatalf("waited for %q in vain", want)
		}
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWatchInPlace(t *testing.T) {
	name := filepath.Join(t.TempDir(), "weir.yaml")
	write(t, name, fmt.Sprintf(withLevel, "info"))
	w := startWatch(t, name, nil)
	w.next("idle")
	for _, level := range []string{"debug", "warn", "error"} {
		write(t, name, fmt.Sprintf(withLevel, level))
		w.until(level)
	}
	write(t, name, "log: {level: loud}\n")
	w.until("broken")
	write(t, name, fmt.Sprintf(withLevel, "info"))
	w.until("info")
}

func TestWatchRenamedOver(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "weir.yaml")
	write(t, name, fmt.Sprintf(withLevel, "info"))
	w := startWatch(t, name, nil)
	w.next("idle")
	for _, level := range []string{"debug", "warn", "error"} {
		write(t, name+".new", fmt.Sprintf(withLevel, level))
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
		w.until(level)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	w.until("broken")
	write(t, name, fmt.Sprintf(withLevel, "warn"))
	w.until("warn")
}

// Kubernetes has the file be a link to ..data/weir.yaml, and ..data one to a directory; a
// new directory is made, and ..data renamed over.
func TestWatchSwappedLink(t *testing.T) {
	dir := t.TempDir()
	swap := func(level string) {
		version := filepath.Join(dir, "..version-"+level)
		if err := os.Mkdir(version, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(version, "weir.yaml"), fmt.Sprintf(withLevel, level))
		if err := os.Symlink(filepath.Base(version), filepath.Join(dir, "..tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	swap("info")
	name := filepath.Join(dir, "weir.yaml")
	if err := os.Symlink(filepath.Join("..data", "weir.yaml"), name); err != nil {
		t.Fatal(err)
	}
	w := startWatch(t, name, nil)
	w.next("idle")
	for _, level := range []string{"debug", "warn", "error"} {
		swap(level)
		w.until(level)
	}
}

// A link into another directory, where only that one changes.
func TestWatchLinkedDirectory(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	real, name := filepath.Join(elsewhere, "real.yaml"), filepath.Join(dir, "weir.yaml")
	write(t, real, fmt.Sprintf(withLevel, "info"))
	if err := os.Symlink(real, name); err != nil {
		t.Fatal(err)
	}
	w := startWatch(t, name, nil)
	w.next("idle")
	write(t, real, fmt.Sprintf(withLevel, "debug"))
	w.until("debug")
}

func TestWatchSecret(t *testing.T) {
	dir := t.TempDir()
	name, token := filepath.Join(dir, "weir.yaml"), filepath.Join(t.TempDir(), "token")
	write(t, token, "0123456789-0123456789-0123456789-a\n")
	write(t, name, fmt.Sprintf("clients: {a: {token_file: %s}}\n", token))
	w := startWatch(t, name, nil)
	w.next("idle")
	write(t, token, "short\n")
	w.until("broken")
	write(t, token, "0123456789-0123456789-0123456789-b\n")
	w.until("info")

	// A file that only the broken configuration names is waited for, too.
	missing := filepath.Join(t.TempDir(), "missing")
	write(t, name, fmt.Sprintf("log: {level: debug}\nclients: {a: {token_file: %s}}\n", missing))
	w.until("broken")
	write(t, missing, "0123456789-0123456789-0123456789-c\n")
	w.until("debug")

	// So is one that a good configuration names anew.
	another := filepath.Join(t.TempDir(), "another")
	write(t, another, "0123456789-0123456789-0123456789-d\n")
	write(t, name, fmt.Sprintf("log: {level: warn}\nclients: {a: {token_file: %s}}\n", another))
	w.until("warn")
	write(t, another, "short\n")
	w.until("broken")
}

// What changes between Load and Watch is seen although nothing happens afterwards.
func TestWatchBeforeItBegan(t *testing.T) {
	name := filepath.Join(t.TempDir(), "weir.yaml")
	write(t, name, fmt.Sprintf(withLevel, "info"))
	w := startWatch(t, name, func(*watch) { write(t, name, fmt.Sprintf(withLevel, "debug")) })
	w.until("debug")
}

// Without help of the system, changes are found by looking.
func TestWatchPolls(t *testing.T) {
	name := filepath.Join(t.TempDir(), "weir.yaml")
	write(t, name, fmt.Sprintf(withLevel, "info"))
	w := startWatch(t, name, func(w *watch) { w.every = time.Millisecond })
	w.next("idle")
	for _, level := range []string{"debug", "warn"} {
		write(t, name, fmt.Sprintf(withLevel, level))
		w.until(level)
	}
}

// A file that is replaced by its like is no change. The check runs by hand, so that
// nothing has to be waited for that does not come.
func TestWatchSameContent(t *testing.T) {
	name := filepath.Join(t.TempDir(), "weir.yaml")
	write(t, name, fmt.Sprintf(withLevel, "info"))
	c, err := Load(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer notify.Close()
	calls := 0
	w := &watch{log: slog.New(slog.DiscardHandler), seen: c.loaded, notify: notify, reload: func() (*Config, error) {
		calls++
		return Load(name, nil)
	}}
	write(t, name+".new", fmt.Sprintf(withLevel, "info"))
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
	if w.check() || calls != 0 {
		t.Error("a file with the same content was loaded again")
	}
	write(t, name, fmt.Sprintf(withLevel, "warn"))
	if !w.check() || w.check() || calls != 1 {
		t.Errorf("a change was loaded %d times", calls)
	}
}

// A missing configuration has nothing to watch, but ends with its context.
func TestWatchNothing(t *testing.T) {
	c, err := Load("", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	Watch(ctx, c, slog.New(slog.DiscardHandler), nil)
}
