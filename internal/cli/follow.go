package cli

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/config"
	"github.com/weirlimit/weir/server"
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
		case <-d.again:
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
	live := next.Live()
	live.Effective = withPending(d.start.Live().Effective, live.Effective)
	if err := d.server.Reload(ctx, live); err != nil {
		d.pending.Store(true)
		d.log.Error("the configuration could not be applied yet; the previous one stays in force", "error", err, "again_in", retryEvery)
		return next, nil
	}
	d.logChanges(next, live.Effective)
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

// logChanges logs what has changed since the last reload, and which settings wait for a restart.
func (d *follower) logChanges(next *config.Config, effective []server.Setting) {
	for _, w := range next.Warnings {
		d.log.Warn(w.Text, "at", w.Where(), "field", w.Path)
	}
	changes, waiting := 0, []string{}
	for _, c := range compare(d.config.Live().Effective, next.Live().Effective) {
		if c.same() {
			continue
		}
		if changes++; changes <= maxLogged {
			d.log.Info("changed", "field", c.path, "from", c.old.Value, "to", c.new.Value)
		}
	}
	d.log.Info("the configuration was reloaded", "changes", changes)
	for _, s := range effective {
		if s.Pending != nil {
			waiting = append(waiting, s.Path)
		}
	}
	if len(waiting) > 0 {
		d.log.Warn("some changes need a restart", "fields", strings.Join(waiting, ", "))
	}
}

// change is a setting in two configurations. Its zero value stands where it is not set.
type change struct {
	path     string
	old, new server.Setting
}

func (c *change) same() bool {
	return c.old.Path == c.new.Path && reflect.DeepEqual(c.old.Value, c.new.Value)
}

// compare pairs the settings of two configurations: all of the second, then those that only the
// first has.
func compare(first, second []server.Setting) (list []change) {
	old := map[string]server.Setting{}
	for _, s := range first {
		old[s.Path] = s
	}
	for _, s := range second {
		list = append(list, change{s.Path, old[s.Path], s})
		delete(old, s.Path)
	}
	for _, s := range first {
		if _, only := old[s.Path]; only {
			list = append(list, change{path: s.Path, old: s})
		}
	}
	return list
}

// withPending returns the settings that are in force: those of next, except that settings that need
// a restart have the values of the start, and what next has as pending.
func withPending(start, next []server.Setting) (list []server.Setting) {
	for _, c := range compare(start, next) {
		switch {
		case config.NeedsRestart(c.path) && !c.same():
			list = append(list, server.Setting{
				Path: c.path, Value: c.old.Value, Source: c.old.Source,
				Pending: &server.PendingSetting{Value: c.new.Value, Source: c.new.Source},
			})
		case c.new.Path != "":
			list = append(list, c.new)
		}
	}
	return list
}
