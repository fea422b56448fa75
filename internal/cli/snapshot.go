package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/internal/config"
	"github.com/weirlimit/weir/store/memstore"
)

// snapshots keeps a table in a file, so that its counters survive a restart.
type snapshots struct {
	file  string
	every time.Duration
	log   *slog.Logger
	fails prometheus.Counter
}

func newSnapshots(c config.Snapshot, log *slog.Logger) *snapshots {
	return &snapshots{file: c.File.Name, every: c.Every.Duration, log: log, fails: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "weir_snapshot_failures_total", Help: "Snapshots that could not be saved.",
	})}
}

// open returns the table that is in the file, or an empty one if there is no file
// yet or what is in it cannot be used. A file that cannot be read is an error:
// its counters would be lost otherwise.
func (s *snapshots) open(c memstore.Config) (*memstore.Table, error) {
	c.Snapshots = true
	table, err := memstore.Load(s.file, c)
	switch {
	case err == nil:
		s.logRestored(table)
		return table, nil
	case errors.Is(err, memstore.ErrSnapshot):
		err = s.setAside(err)
	case errors.Is(err, fs.ErrNotExist):
		err = s.noneYet()
	default:
		err = fmt.Errorf("%w; make it a file that the daemon can read, or rename it to start empty", err)
	}
	if err != nil {
		return nil, err
	}
	return memstore.New(c)
}

// logRestored logs what was restored.
func (s *snapshots) logRestored(table *memstore.Table) {
	stats := table.Stats()
	attrs := []any{"file", s.file, "keys", stats.Keys, "reservations", stats.Holds}
	var age time.Duration
	if info, err := os.Stat(s.file); err == nil {
		age = time.Since(info.ModTime()).Round(time.Second)
		attrs = append(attrs, "age", max(0, age))
	}
	s.log.Info("restored from the snapshot", attrs...)
	if age < -time.Second {
		s.log.Warn("the clock is behind the snapshot; until it has caught up, no units come back and no window ends", "behind", -age)
	}
	if stats.Evicted > 0 {
		s.log.Warn("the snapshot has more keys than max_keys; those that used least were dropped", "keys", stats.Evicted, "units_forgiven", stats.Forgiven)
	}
}

// setAside renames a file that cannot be used, so that the next save does not
// overwrite it.
func (s *snapshots) setAside(problem error) error {
	bad := s.file + ".bad"
	if err := os.Rename(s.file, bad); err != nil {
		return fmt.Errorf("%w; it could not be moved out of the way: %w", problem, err)
	}
	s.log.Warn("starting empty: earlier usage is lost", "error", problem, "kept_as", bad)
	return nil
}

// noneYet handles the first start. A missing directory is an error now, because every
// later save would fail.
func (s *snapshots) noneYet() error {
	dir := filepath.Dir(s.file)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return fmt.Errorf("snapshot %q: there is no directory %q; create it", s.file, dir)
	}
	s.log.Info("no snapshot yet, starting empty", "file", s.file)
	return nil
}

// run calls serve and saves the table periodically until it returns, and once more
// afterwards if serve reports that it began.
func (s *snapshots) run(table *memstore.Table, serve func() (began bool, err error)) error {
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { s.saveEvery(ctx, table) })
	began, err := serve()
	stop()
	wg.Wait()
	if !began {
		return err
	}
	if e := table.Save(s.file); e != nil {
		return errors.Join(err, fmt.Errorf("usage since the last snapshot is lost: %w", e))
	}
	s.log.Info("saved", "file", s.file, "keys", table.Stats().Keys)
	return err
}

// saveEvery saves the table periodically until ctx ends. If a save fails, the
// previous file stays, and the next tick tries again.
func (s *snapshots) saveEvery(ctx context.Context, table *memstore.Table) {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := table.Save(s.file); err != nil {
				s.fails.Inc()
				s.log.Error("cannot save; a restart would go back to the last snapshot", "file", s.file, "error", err)
			}
		}
	}
}
