package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/config"
	"github.com/weirlimit/weir/store/memstore"
)

// emptySnapshots returns one that saves to a new directory every minute, and its log.
func emptySnapshots(t *testing.T) (*snapshots, *bytes.Buffer) {
	var log bytes.Buffer
	file := filepath.Join(t.TempDir(), "dir", "weir.snap")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	return newSnapshots(config.Snapshot{File: config.Path{Name: file}, Every: config.Duration{Duration: time.Minute}}, slog.New(slog.NewTextHandler(&log, nil))), &log
}

func open(t *testing.T, s *snapshots) *memstore.Table {
	t.Helper()
	table, err := s.open(memstore.Config{MaxKeys: 10})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// Every save that fails is logged, and the next one is tried all the same.
func TestSavesGoOn(t *testing.T) {
	s, log := emptySnapshots(t)
	dir := filepath.Dir(s.file)
	synctest.Test(t, func(t *testing.T) {
		table := open(t, s)
		err := s.run(table, func() (bool, error) {
			time.Sleep(90 * time.Second)
			synctest.Wait()
			if _, err := os.Stat(s.file); err != nil {
				t.Errorf("after a minute: %v", err)
			}
			if err := os.Rename(dir, dir+"-moved"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Minute)
			synctest.Wait()
			if n := strings.Count(log.String(), "cannot save; a restart would go back to the last snapshot"); n != 3 {
				t.Errorf("logged %d times: %s", n, log)
			}
			if err := os.Rename(dir+"-moved", dir); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(s.file); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if _, err := os.Stat(s.file); err != nil {
				t.Errorf("when it is possible again: %v", err)
			}
			return true, nil
		})
		if err != nil || !strings.Contains(log.String(), "msg=saved") {
			t.Errorf("%v: %s", err, log)
		}
	})
}

// The daemon's error is joined with that of the last save.
func TestLastSaveFails(t *testing.T) {
	s, _ := emptySnapshots(t)
	table := open(t, s)
	broken := errors.New("broken")
	err := s.run(table, func() (bool, error) { return true, errors.Join(broken, os.RemoveAll(filepath.Dir(s.file))) })
	if !errors.Is(err, broken) || !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "since the last snapshot is lost") {
		t.Errorf("%v", err)
	}
}

// A daemon that never listened, because another one does, leaves that one's file.
func TestNothingToSave(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	s, _ := emptySnapshots(t)
	var stdout, stderr bytes.Buffer
	code := Main(context.Background(), []string{"serve", "--http", other.Addr().String(), "--grpc", "off", "--resp", "off", "--snapshot", s.file}, &stdout, &stderr)
	if _, err := os.Stat(s.file); code != exitFailure || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("exit code %d, %v: %s", code, err, stderr.String())
	}
}

// TestServeSavesAtItsEnd runs in this process, where goleak sees what it leaves.
func TestServeSavesAtItsEnd(t *testing.T) {
	s, _ := emptySnapshots(t)
	ctx, cancel := context.WithCancel(context.Background())
	var stderr bytes.Buffer
	code := Main(ctx, []string{"serve", "--http", "localhost:0", "--grpc", "off", "--resp", "off", "--snapshot", s.file}, writerFunc(func([]byte) { cancel() }), &stderr)
	info, err := os.Stat(s.file)
	if code != exitOK || err != nil || info.Mode() != 0o600 {
		t.Errorf("exit code %d, %v, %v: %s", code, info, err, stderr.String())
	}
}

// The clock is six minutes behind when the daemon starts again. What was used stays used.
func TestClockBehindAtStart(t *testing.T) {
	s, log := emptySnapshots(t)
	p, err := weir.NewPolicy("p", weir.Limit{Rate: 10, Per: weir.Every(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	remaining := func(table *memstore.Table, cost int64) int64 {
		d, err := table.Take(context.Background(), p, "k", cost)
		if err != nil {
			t.Fatal(err)
		}
		return d.Remaining
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(6 * time.Minute)
		table := open(t, s)
		err := s.run(table, func() (bool, error) {
			remaining(table, 10)
			return true, nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(s.file, later, later); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) { // in which it is the beginning of 2000 again
		table := open(t, s)
		for _, step := range []struct {
			after time.Duration
			want  int64
		}{{0, 0}, {6 * time.Minute, 0}, {time.Minute, 10}} {
			time.Sleep(step.after)
			if n := remaining(table, 0); n != step.want {
				t.Errorf("%v later %d remain, want %d", step.after, n, step.want)
			}
		}
	})
	if !strings.Contains(log.String(), "the clock is behind the snapshot") {
		t.Errorf("nothing was logged: %s", log)
	}
}

// Neither a file that cannot be read nor one that cannot be moved out of the way is
// lost: the daemon does not start.
func TestFilesThatAreInTheWay(t *testing.T) {
	s, _ := emptySnapshots(t)
	write := func(mode os.FileMode) {
		if err := os.WriteFile(s.file, []byte("precious"), mode); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(want string) {
		t.Helper()
		if _, err := s.open(memstore.Config{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if text, err := os.ReadFile(s.file); err == nil && string(text) != "precious" {
			t.Errorf("the file says %q", text)
		}
	}
	if os.Geteuid() != 0 { // root reads everything
		write(0)
		refused("permission denied; make it a file that the daemon can read, or rename it to start empty")
		_ = os.Remove(s.file)
	}
	write(0o600)
	if err := os.MkdirAll(filepath.Join(s.file+".bad", "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	refused("it could not be moved out of the way")
}

// A million keys take at most 64 MiB of the process, with all that the garbage
// collector leaves lying around. The race detector takes 60 µs for each, so that the
// short form has fewer; with so few what lies around says more of the tests before, and
// it counts what is in use.
func TestManyKeysFit(t *testing.T) {
	keys, memory := 40_000, inUse
	if os.Getenv("WEIR_TEST") == "all" {
		keys, memory = 1_000_000, ofTheSystem
	}
	s, _ := emptySnapshots(t)
	before := memory()
	table, err := s.open(memstore.Config{MaxKeys: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	p, err := weir.NewPolicy("p", weir.Limit{Rate: 1, Per: weir.Every(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range keys {
		if _, err := table.Take(context.Background(), p, fmt.Sprint("user-", i), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Save(s.file); err != nil {
		t.Fatal(err)
	}
	used, most := memory()-before, int64(keys)*(64<<20)/1_000_000
	t.Logf("%d keys take %.1f MiB, of which the table has %.1f", keys, float64(used)/(1<<20), float64(table.Stats().Bytes)/(1<<20))
	if used > most || table.Stats().Keys != keys {
		t.Errorf("%d keys take %d bytes, more than %d", table.Stats().Keys, used, most)
	}
}

// inUse returns how much memory the process holds on to.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the first one's pools
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// ofTheSystem returns how much of the system's memory the process has.
func ofTheSystem() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys - m.HeapReleased)
}
