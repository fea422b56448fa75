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

// snapshots keeps a table in a file, so that a restart does not forgive everyone.
type snapshots struct {
	file  string
	every time.Duration
	log   *slog.Logger
	fails prometheus.Counter
}

func newSnapshots(c config.SnapshotSettings, log *slog.Logger) *snapshots {
	return &snapshots{file: c.File, every: c.Every, log: log, fails: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "weir_snapshot_failures_total", Help: "Snapshots that could not be saved.",
	})}
}

// open returns the table that is in the file, or an empty one if there is no file
// yet or what is in it cannot be used. A file that cannot be read is an error:
// whoever mends that wants the counts in it.
func (s *snapshots) open(c memstore.Config) (*memstore.Table, error) {
	c.Snapshots = true
	table, err := memstore.Load(s.file, c)
	switch {
	case err == nil:
		s.tell(table)
		return table, nil
	case errors.Is(err, memstore.ErrSnapshot):
		err = s.setAside(err)
	case errors.Is(err, fs.ErrNotExist):
		err = s.noneYet()
	default:
		err = fmt.Errorf("%w; make it a file that the daemon can read, or move it away to start empty", err)
	}
	if err != nil {
		return nil, err
	}
	return memstore.New(c)
}

// tell logs what was restored.
func (s *snapshots) tell(table *memstore.Table) {
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

// setAside renames a file that cannot be used, so that nothing is lost: the next
// save would take its place.
func (s *snapshots) setAside(problem error) error {
	bad := s.file + ".bad"
	if err := os.Rename(s.file, bad); err != nil {
		return fmt.Errorf("%w; it could not be moved out of the way: %w", problem, err)
	}
	s.log.Warn("starting empty: everybody's use so far is forgiven", "error", problem, "kept_as", bad)
	return nil
}

// noneYet is for the first start. Later a missing directory would be an error every
// minute, and nothing saved.
func (s *snapshots) noneYet() error {
	dir := filepath.Dir(s.file)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return fmt.Errorf("snapshot %q: there is no directory %q; create it", s.file, dir)
	}
	s.log.Info("no snapshot yet, starting empty", "file", s.file)
	return nil
}

// during calls serve and saves the table every so often meanwhile, and once more
// when it is over if serve says that there was something to save.
func (s *snapshots) during(table *memstore.Table, serve func() (began bool, err error)) error {
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { s.run(ctx, table) })
	began, err := serve()
	stop()
	wg.Wait()
	if !began {
		return err
	}
	if e := table.Save(s.file); e != nil {
		return errors.Join(err, fmt.Errorf("what was used since the last snapshot will be forgiven: %w", e))
	}
	s.log.Info("saved", "file", s.file, "keys", table.Stats().Keys)
	return err
}

// run saves the table every so often until ctx ends. If it cannot, the file that
// is there stays, and it tries again next time.
func (s *snapshots) run(ctx context.Context, table *memstore.Table) {
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
