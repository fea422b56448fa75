package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weirlimit/weir/internal/config"
)

// tasks run in the background until end.
type tasks struct {
	stops []context.CancelFunc
	wg    sync.WaitGroup
}

// run starts a task, which is to return soon after its context ends.
func (t *tasks) run(task func(context.Context)) {
	ctx, stop := context.WithCancel(context.Background())
	t.stops = append(t.stops, stop)
	t.wg.Go(func() { task(ctx) })
}

// end stops all tasks and waits for them.
func (t *tasks) end() {
	for _, stop := range t.stops {
		stop()
	}
	t.wg.Wait()
}

// retryEvery is how often a configuration is applied again that the store did not accept
// because it was unavailable.
const retryEvery = 5 * time.Second

// follow reloads the configuration whenever its files change, and on SIGHUP, until ctx
// ends.
func (d *follower) follow(ctx context.Context) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)
	defer signal.Stop(again)
	var watch tasks
	defer watch.end()
	if d.flags.file != "" {
		first := d.config
		watch.run(func(ctx context.Context) {
			config.Watch(ctx, first, d.log, func() (*config.Config, error) { return d.reload(ctx) })
		})
	}
	retry := time.NewTicker(retryEvery)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again:
			_, _ = d.reload(ctx) // which logs its errors
		case <-retry.C:
			if d.pending.Load() {
				_, _ = d.reload(ctx)
			}
		}
	}
}

// reload reads the files and puts their configuration in force. If it is invalid, nothing
// changes, and the errors are logged. It returns an error only if the files are invalid: after
// an error of the store, follow tries again.
func (d *follower) reload(ctx context.Context) (*config.Config, error) {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	d.pending.Store(false)
	next, err := d.flags.load(d.cmd)
	if err != nil {
		d.server.ReloadFailed(err)
		for _, p := range problems(err) {
			d.log.Error("the configuration was rejected; the previous one stays in force", "error", p)
		}
		return nil, err
	}
	if err := d.server.Reload(ctx, next.Live()); err != nil {
		d.pending.Store(true)
		d.log.Error("the configuration could not be applied yet; the previous one stays in force", "error", err, "again_in", retryEvery)
		return next, nil
	}
	d.logChanges(next)
	d.config = next
	return next, nil
}

// problems returns what is wrong, one by one and on one line each.
func problems(err error) (list []string) {
	bad, ok := errors.AsType[*config.Error](err)
	if !ok {
		return []string{err.Error()}
	}
	for _, p := range bad.Problems {
		list = append(list, p.Summary())
	}
	return list
}

// maxLogged is how many changes of a configuration are logged one by one.
const maxLogged = 50

// logChanges logs what has changed, and which changes need a restart.
func (d *follower) logChanges(next *config.Config) {
	for _, w := range next.Warnings {
		d.log.Warn(w.Text, "at", w.Where(), "field", w.Path)
	}
	was, changes, later := map[string]any{}, 0, []string{}
	for _, s := range d.config.Settings() {
		was[s.Path] = s.Value
	}
	for _, s := range next.Settings() {
		old, had := was[s.Path]
		delete(was, s.Path)
		if had && reflect.DeepEqual(old, s.Value) {
			continue
		}
		if needsRestart(s.Path) {
			later = append(later, s.Path)
		}
		if changes++; changes <= maxLogged {
			d.log.Info("changed", "field", s.Path, "from", old, "to", s.Value)
		}
	}
	for path, old := range was {
		if changes++; changes <= maxLogged {
			d.log.Info("changed", "field", path, "from", old, "to", nil)
		}
	}
	d.log.Info("the configuration was reloaded", "changes", changes)
	if len(later) > 0 {
		d.log.Warn("some changes need a restart", "fields", strings.Join(later, ", "))
	}
}

// needsRestart says whether a field is not part of server.Live.
func needsRestart(path string) bool {
	for _, section := range []string{"listen", "store", "log", "tracing"} {
		if path == section || strings.HasPrefix(path, section+".") {
			return true
		}
	}
	return false
}
