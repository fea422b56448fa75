package config

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// How changes are noticed: so long after the first sign of one, and anyway so often.
const (
	settle    = 100 * time.Millisecond
	pollEvery = 10 * time.Second
)

// Watch calls reload whenever one of the files that c was made from has another content,
// until ctx ends. c is the configuration that is in force; reload loads the file again
// and returns what it got. If that is an error, the next change is waited for, also of
// files that only the broken configuration names.
//
// It watches directories, because files are seldom written in place: editors rename a new
// one over the old, and Kubernetes swaps a symbolic link above it. What it sees there only
// makes it look; whether something has changed is decided by comparing contents with
// those that were loaded last. So nothing is missed that happened before Watch began or
// while reload ran, and a file that is touched or replaced by its like is no change.
// Where the system cannot tell of changes, they are found every ten seconds.
func Watch(ctx context.Context, c *Config, log *slog.Logger, reload func() (*Config, error)) {
	w := &watch{log: log, reload: reload, every: pollEvery, seen: maps.Clone(c.loaded)}
	w.watch(ctx)
}

// watch is the state of Watch.
type watch struct {
	log    *slog.Logger
	reload func() (*Config, error)
	every  time.Duration
	notify *fsnotify.Watcher // nil if there is none
	seen   contents          // of the files, when they were loaded last
	idle   func()            // for tests: called when nothing has changed, unless it is nil
}

// watch has the system tell of changes, if it can.
func (w *watch) watch(ctx context.Context) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		w.log.Warn("the system does not tell of changed files; looking every so often", "every", w.every, "error", err)
		w.run(ctx)
		return
	}
	defer notify.Close()
	w.notify = notify
	w.run(ctx)
}

func (w *watch) run(ctx context.Context) {
	poll := time.NewTicker(w.every)
	defer poll.Stop()
	var events chan fsnotify.Event
	var failures chan error
	if w.notify != nil {
		events, failures = w.notify.Events, w.notify.Errors
	}
	look := time.After(0) // nil while there is no sign of a change
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
			look = soon(look)
		case <-look:
			look = nil
			if w.check() {
				look = soon(look) // a file that is new to us may have changed before it was watched
			} else if w.idle != nil {
				w.idle()
			}
		case <-events:
			look = soon(look)
		case err := <-failures: // such as too many events
			w.log.Debug("watching files", "error", err)
			look = soon(look)
		}
	}
}

// soon returns when to look. Further signs do not put it off, or a directory in which
// much happens would never be looked at.
func soon(look <-chan time.Time) <-chan time.Time {
	if look != nil {
		return look
	}
	return time.After(settle)
}

// check reloads if a file has changed, and says whether it did. Directories are followed
// first, so that a change after the comparison is seen there.
func (w *watch) check() bool {
	w.follow()
	now := contents{}
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(w.seen)) {
		data, _, err := readRegular(name)
		now.note(name, data, err)
		if now[name] != w.seen[name] {
			changed = append(changed, name)
		}
	}
	if len(changed) == 0 {
		return false
	}
	w.log.Info("the configuration has changed", "files", changed)
	c, err := w.reload()
	switch bad, ok := errors.AsType[*Error](err); {
	case err == nil && c != nil:
		now = maps.Clone(c.loaded)
	case ok: // the file may be fine, and one that it names may be to blame
		maps.Copy(now, bad.loaded)
	}
	w.seen = now
	w.follow()
	return true
}

// follow watches the directories of all files and, for symbolic links, of what they
// point at. To watch one again changes nothing.
func (w *watch) follow() {
	if w.notify == nil {
		return
	}
	for name := range w.seen {
		dirs := []string{filepath.Dir(name)}
		if real, err := filepath.EvalSymlinks(name); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
		for _, dir := range slices.Compact(dirs) {
			if err := w.notify.Add(dir); err != nil {
				w.log.Debug("a directory cannot be watched; looking every so often", "directory", dir, "error", err)
			}
		}
	}
}
