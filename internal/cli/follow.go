package cli

import (
	"context"
	"errors"
	"fmt"
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

// retryEvery is how long after a failure the store is told again of a configuration that it
// could not be told of.
const retryEvery = 5 * time.Second

// follow reads the configuration again whenever its files change, and on SIGHUP, until ctx
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
			_, _ = d.reload(ctx) // which tells what is wrong
		case <-retry.C:
			if d.pending.Load() {
				_, _ = d.reload(ctx)
			}
		}
	}
}

// reload puts the configuration in force that the files have now. If it is wrong, nothing
// changes, and it is told why. It returns an error only if the files are wrong: what the
// store could not be told of is tried again.
func (d *follower) reload(ctx context.Context) (*config.Config, error) {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	d.pending.Store(false)
	next, err := d.load()
	if err != nil {
		d.server.ReloadFailed(err)
		for _, p := range problems(err) {
			d.log.Error("the configuration is not taken over; the one before stays", "error", p)
		}
		return nil, err
	}
	if err := d.server.Reload(ctx, next.Live()); err != nil {
		d.pending.Store(true)
		d.log.Error("the configuration is not taken over yet; the one before stays", "error", err, "again_in", retryEvery)
		return next, nil
	}
	d.tell(next)
	d.config = next
	return next, nil
}

// load reads the files again. An empty one is an error then, although a daemon starts with
// it: nobody means to take all policies away by it, but whoever writes a file empties it
// first.
func (d *follower) load() (*config.Config, error) {
	if info, err := os.Stat(d.flags.file); d.flags.file != "" && err == nil && info.Size() == 0 {
		return nil, fmt.Errorf("%s: is empty; that is not taken for a change of everything", d.flags.file)
	}
	return d.flags.load(d.cmd)
}

// problems returns what is wrong, one by one and on one line each.
func problems(err error) (list []string) {
	bad, ok := errors.AsType[*config.Error](err)
	if !ok {
		return []string{err.Error()}
	}
	for _, p := range bad.Problems {
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s: %s: %s", p.Where(), p.Path, p.Text)))
	}
	return list
}

// maxTold is how many changes of a configuration are logged one by one.
const maxTold = 50

// tell logs what has changed, and what would have if the daemon were started again.
func (d *follower) tell(next *config.Config) {
	for _, w := range next.Warnings {
		d.log.Warn(w.Text, "at", w.Where(), "field", w.Path)
	}
	was, told, later := map[string]any{}, 0, []string{}
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
		if told++; told <= maxTold {
			d.log.Info("changed", "field", s.Path, "from", old, "to", s.Value)
		}
	}
	for path, old := range was {
		if told++; told <= maxTold {
			d.log.Info("changed", "field", path, "from", old, "to", nil)
		}
	}
	d.log.Info("the configuration was read again", "changes", told)
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
