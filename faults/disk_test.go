package faults

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/faults/internal/history"
	"github.com/weirlimit/weir/faults/internal/rig"
)

// F20: the disk on which the daemon keeps its counts is full for some time.
func TestDiskFull(t *testing.T) {
	tr := try(t, "F20", "the disk with a daemon's snapshot is full for 10 s, then not any more",
		"decisions go on; `weir_snapshot_failures_total` rises and the log tells; the last snapshot survives and can be used; with room the next one is saved; exit code 0")
	disk := newDisk(tr)
	file := filepath.Join(disk.dir, "weir.snap")
	args := []string{"-c", withLogin(tr), "--snapshot", file, "--snapshot-every", "1s"}
	fleet := tr.fleet(1, args...)
	load := fleet.StartLoad(mix())
	awaitSave(tr, file, nil)
	load.For(pick(5*time.Second, 0))

	fault := load.Now()
	kept := disk.fill(func() { awaitFailures(tr, fleet, 1) }, file)
	awaitFailures(tr, fleet, pick(10, 2))
	failures := fleet.Metric(0, snapshotMetric)
	logged := fleet.Daemons[0].Logged("cannot save")
	survived := bytes.Equal(kept, read(tr, file))
	restored := startsFrom(tr, kept)
	disk.free()
	mended := load.Now()
	awaitSave(tr, file, kept)
	saved := load.Now() - mended
	load.For(pick(5*time.Second, 0))
	list := load.Stop()
	more := fleet.Metric(0, snapshotMetric) - failures

	spend := func(f *rig.Fleet) rig.Answer {
		answer, err := f.AskFor(0, "login", "spent", loginBurst)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	if first := spend(fleet); !first.Allowed {
		t.Fatalf("a new key is refused: %+v", first)
	}
	fleet.Stop() // which saves, and fails the test unless the exit code is 0

	tr.note("the disk", "%s", disk.what)
	tr.judge(list, 0, "0")
	tr.atLeast("failures counted", failures, pick(10.0, 2), "one each second")
	tr.atLeast("failures logged", float64(logged), failures-1, "those counted")
	tr.none("last snapshot lost or changed", count(!survived))
	tr.none("last snapshot not usable", count(!restored))
	tr.atMost("failures with room again", more, 1, "one that was under way")
	tr.within("saved after there was room", saved, 2*time.Second)
	before := history.Percentile(history.Between(list, 0, fault), 0.99)
	tr.stalled(list)
	tr.note("p99 before", "%s", brief(before))
	tr.note("p99 meanwhile", "%s", brief(history.Percentile(history.Between(list, fault, mended), 0.99)))
	tr.none("lost by a restart", count(spend(tr.fleet(1, args...)).Allowed))
}

const snapshotMetric = "weir_snapshot_failures_total"

// awaitSave waits until a snapshot is there that is another than the last.
func awaitSave(tr *trial, file string, last []byte) {
	tr.Helper()
	rig.Await(tr, "a snapshot", patience, func() error {
		now, err := os.ReadFile(file)
		if err == nil && bytes.Equal(now, last) {
			err = errors.New("it is the one before")
		}
		return err
	})
}

// awaitFailures waits until so many snapshots could not be saved.
func awaitFailures(tr *trial, fleet *rig.Fleet, n int) {
	tr.Helper()
	rig.Await(tr, "snapshots to fail", patience, func() error {
		if got := fleet.Metric(0, snapshotMetric); got < float64(n) {
			return fmt.Errorf("%v have failed, want %d", got, n)
		}
		return nil
	})
}

// startsFrom says whether a daemon takes a snapshot for one.
func startsFrom(tr *trial, snapshot []byte) bool {
	tr.Helper()
	file := filepath.Join(tr.TempDir(), "restored.snap")
	if err := os.WriteFile(file, snapshot, 0o600); err != nil {
		tr.Fatal(err)
	}
	fleet := tr.fleet(1, "--snapshot", file)
	fleet.Stop() // so that all of its log was read
	return fleet.Daemons[0].Logged("restored from the snapshot") == 1
}

func read(tr *trial, file string) []byte {
	tr.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		tr.Fatal(err)
	}
	return data
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// A disk is a directory on which writing can be made to fail.
type disk struct {
	tr   *trial
	dir  string
	what string
	full string // what is in the way
}

// newDisk mounts a file system of 64 KiB in memory. Who may not do that gets a directory.
func newDisk(tr *trial) *disk {
	tr.Helper()
	d := &disk{tr: tr, dir: tr.TempDir(), what: "a tmpfs of 64 KiB"}
	if err := syscall.Mount("tmpfs", d.dir, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		tr.Logf("no tmpfs: %v", err)
		d.what = "not full: something is where the new snapshot is to be written"
		return d
	}
	tr.Cleanup(func() {
		if err := syscall.Unmount(d.dir, 0); err != nil {
			tr.Errorf("%s: %v", d.dir, err)
		}
	})
	return d
}

// fill leaves no room, and returns what is in the file then. A snapshot may be half
// written just now, and there is room again once it has failed: filled is to wait for that.
func (d *disk) fill(filled func(), file string) []byte {
	d.tr.Helper()
	if d.what != "a tmpfs of 64 KiB" {
		d.full = file + ".tmp"
		if err := os.MkdirAll(filepath.Join(d.full, "in the way"), 0o700); err != nil {
			d.tr.Fatal(err)
		}
		filled()
		return read(d.tr, file)
	}
	d.full = filepath.Join(d.dir, "filler")
	d.write()
	filled()
	d.write()
	return read(d.tr, file)
}

// write writes until there is no room.
func (d *disk) write() {
	d.tr.Helper()
	f, err := os.OpenFile(d.full, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		d.tr.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		d.tr.Fatal(err)
	}
}

// free makes room.
func (d *disk) free() {
	d.tr.Helper()
	if err := os.RemoveAll(d.full); err != nil {
		d.tr.Fatal(err)
	}
}
