package memstore

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

func save(t *testing.T, table *Table, file string) {
	t.Helper()
	if err := table.Save(file); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, file string, c Config) *Table {
	t.Helper()
	table, err := Load(file, c)
	if err != nil {
		t.Fatal(err)
	}
	check(t, table)
	return table
}

// Save replaces the file that was there, and leaves nothing else. Only the owner
// can read it, whatever lay around.
func TestSave(t *testing.T) {
	c := newClock()
	dir := t.TempDir()
	file := filepath.Join(dir, "weir.snap")
	table := newTable(t, Config{Snapshots: true, Now: c.Now})
	p := policy(t, "p", perHour(10))
	if err := os.WriteFile(file+".tmp", make([]byte, 1<<20), 0o666); err != nil { // longer than what comes
		t.Fatal(err)
	}
	for want := int64(9); want > 6; want-- {
		take(t, table, p, "k", 1)
		save(t, table, file)
		if d := take(t, load(t, file, Config{Now: c.Now}), p, "k", 0); d.Remaining != want {
			t.Errorf("%+v, want %d remaining", d, want)
		}
	}
	files, _ := os.ReadDir(dir)
	info, err := os.Stat(file)
	if len(files) != 1 || err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, mode %v, %v", files, info.Mode(), err)
	}
}

// Somebody who may write to the directory cannot make Save write elsewhere.
func TestSaveFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	file, precious := filepath.Join(dir, "weir.snap"), filepath.Join(dir, "precious")
	if err := os.WriteFile(precious, []byte("gold"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(precious, file+".tmp"); err != nil {
		t.Fatal(err)
	}
	save(t, newTable(t, Config{Snapshots: true}), file)
	if text, err := os.ReadFile(precious); err != nil || string(text) != "gold" {
		t.Errorf("%q, %v", text, err)
	}
}

// A Save that fails leaves the file that was there, and nothing else.
func TestFailedSave(t *testing.T) {
	c := newClock()
	dir := t.TempDir()
	file := filepath.Join(dir, "weir.snap")
	table := newTable(t, Config{Snapshots: true, Now: c.Now})
	p := policy(t, "p", perHour(10))
	take(t, table, p, "k", 4)
	save(t, table, file)
	unwritable := policy(t, "q", weir.Limit{Rate: 1, Per: weir.Calendar(weir.Day, time.FixedZone("east", 3600))})
	take(t, table, unwritable, "k", 1)
	if err := table.Save(file); err == nil {
		t.Fatal("no error")
	}
	files, _ := os.ReadDir(dir)
	if d := take(t, load(t, file, Config{Now: c.Now}), p, "k", 0); d.Remaining != 6 || len(files) != 1 {
		t.Errorf("%+v, %v", d, files)
	}
	table = newTable(t, Config{Snapshots: true})
	for _, file := range []string{filepath.Join(dir, "none", "weir.snap"), dir} {
		var e *fs.PathError
		var l *os.LinkError
		if err := table.Save(file); !errors.As(err, &e) && !errors.As(err, &l) {
			t.Errorf("%s: %v", file, err)
		}
	}
	if _, err := os.Stat(dir + ".tmp"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what could not be renamed is left: %v", err)
	}
}

func TestLoadErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(filepath.Join(dir, "none"), Config{}); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrSnapshot) {
		t.Errorf("no file: %v", err)
	}
	if _, err := Load(dir, Config{}); err == nil || errors.Is(err, ErrSnapshot) {
		t.Errorf("a directory: %v", err)
	}
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("bad"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(bad, Config{}); !errors.Is(err, ErrSnapshot) {
		t.Errorf("a bad file: %v", err)
	}
}

const killedKeys = 4_000 // more than fit one write

var killedPolicy = weir.Limit{Rate: 1, Per: weir.Every(10_000 * time.Hour), Burst: 10}

// TestSaverProcess is no test but the process that TestKilledWhileSaving kills.
func TestSaverProcess(t *testing.T) {
	file := os.Getenv("WEIR_TEST_SAVE")
	if file == "" {
		t.Skip("runs as a child of TestKilledWhileSaving")
	}
	table := newTable(t, Config{Snapshots: true})
	p := policy(t, "p", killedPolicy)
	for i := range killedKeys {
		take(t, table, p, fmt.Sprint(i), 3)
	}
	save(t, table, file)
	fmt.Println("ready")
	for end := time.Now().Add(time.Minute); time.Now().Before(end); { // it is killed long before
		save(t, table, file)
	}
}

// TestKilledWhileSaving kills a process that does nothing but save, at any moment
// or while the next file is growing. The file has every key all the same.
func TestKilledWhileSaving(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.snap")
	torn := 0
	for i := range short(20, 200) {
		kill := startSaver(t, file)
		if i%2 == 0 {
			time.Sleep(rand.N(20 * time.Millisecond))
		} else {
			awaitGrowth(file + ".tmp")
		}
		kill()
		if _, err := os.Stat(file + ".tmp"); err == nil {
			torn++
		}
		wantKilledKeys(t, file)
	}
	if torn == 0 {
		t.Error("no process was killed while it wrote: the test has shown nothing")
	}
	t.Logf("%d of %d files were left unfinished", torn, short(20, 200))
}

// startSaver returns what kills the process that it starts.
func startSaver(t *testing.T, file string) (kill func()) {
	t.Helper()
	saver := exec.Command(os.Args[0], "-test.run=^TestSaverProcess$")
	saver.Env = append(os.Environ(), "WEIR_TEST_SAVE="+file)
	out, err := saver.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := saver.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = saver.Process.Kill()
		_, _ = io.Copy(io.Discard, out)
		_ = saver.Wait()
	})
	t.Cleanup(kill)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return kill
}

// awaitGrowth waits until there is something of a file, but not for long.
func awaitGrowth(file string) {
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		if info, err := os.Stat(file); err == nil && info.Size() > 0 {
			return
		}
	}
}

func wantKilledKeys(t *testing.T, file string) {
	t.Helper()
	table, err := Load(file, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if n := table.Stats().Keys; n != killedKeys {
		t.Fatalf("%d keys", n)
	}
	p := policy(t, "p", killedPolicy)
	for range 100 {
		if d := take(t, table, p, fmt.Sprint(rand.IntN(killedKeys)), 0); d.Remaining != 7 {
			t.Fatalf("%+v", d)
		}
	}
}

const savedKeys = 1_000_000

func savedTable(b *testing.B) (table *Table, file string) {
	b.Helper()
	table = newTable(b, Config{MaxKeys: savedKeys, Snapshots: true})
	p := policy(b, "p", killedPolicy)
	for i := range savedKeys {
		take(b, table, p, fmt.Sprint(i), 3)
	}
	file = filepath.Join(b.TempDir(), "weir.snap")
	if err := table.Save(file); err != nil {
		b.Fatal(err)
	}
	return table, file
}

// BenchmarkSave saves a million keys to a disk.
func BenchmarkSave(b *testing.B) {
	table, file := savedTable(b)
	for b.Loop() {
		if err := table.Save(file); err != nil {
			b.Fatal(err)
		}
	}
	if info, err := os.Stat(file); err == nil {
		b.ReportMetric(float64(info.Size())/savedKeys, "B/key")
	}
}

// BenchmarkLoad loads them again.
func BenchmarkLoad(b *testing.B) {
	_, file := savedTable(b)
	for b.Loop() {
		if _, err := Load(file, Config{MaxKeys: savedKeys}); err != nil {
			b.Fatal(err)
		}
	}
}
