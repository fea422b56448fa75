package rig

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	startLimit = 15 * time.Second // for a daemon to listen
	stopLimit  = 15 * time.Second // from SIGTERM to its end; it lets requests finish for 11 s
	pollEvery  = 10 * time.Millisecond
)

// Build builds the daemon into dir and returns the program's path.
func Build(root, dir string) (string, error) { return build(root, filepath.Join(dir, "weir")) }

// BuildRace is Build with the race detector, which tells on stderr what it finds.
func BuildRace(root, dir string) (string, error) {
	return build(root, filepath.Join(dir, "weir-race"), "-race")
}

func build(root, program string, flags ...string) (string, error) {
	cmd := exec.Command("go", append(append([]string{"build", "-C", root, "-o", program}, flags...), "./cmd/weir")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("rig: build the daemon: %w\n%s", err, out)
	}
	return program, nil
}

// Daemon is a process of weir serve.
type Daemon struct {
	t    testing.TB // set by startDaemon, like all up to done
	cmd  *exec.Cmd
	url  string
	done chan struct{} // closed when it has ended and all of its log is read

	mu     sync.Mutex // guards the fields below
	log    []line
	killed bool
}

// line is one of a daemon's log.
type line struct {
	At   time.Time // when it was read
	Msg  string
	Part int    // of the store
	Text string // all of it, JSON
}

// startDaemon starts one on a free port and waits until it listens.
func startDaemon(t testing.TB, program string, args ...string) *Daemon {
	t.Helper()
	args = append([]string{"serve", "--http", "127.0.0.1:0", "--grpc", "off", "--resp", "off", "--log-format", "json"}, args...)
	d := &Daemon{t: t, cmd: exec.Command(program, args...), done: make(chan struct{})}
	endWithParent(d.cmd)
	stdout, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatalf("rig: %v", err)
	}
	t.Cleanup(d.cleanUp)
	greeting := make(chan string, 1)
	go d.read(stdout, stderr, greeting)
	select {
	case line := <-greeting:
		_, url, ok := strings.Cut(line, " is listening on ")
		if !ok {
			t.Fatalf("rig: the daemon says %q, not where it listens:\n%s", line, d.logText())
		}
		d.url = url
	case <-time.After(startLimit):
		t.Fatalf("rig: the daemon does not listen within %v:\n%s", startLimit, d.logText())
	}
	return d
}

// read reads what the daemon writes, until it has ended.
func (d *Daemon) read(stdout, stderr io.Reader, greeting chan<- string) {
	var wg sync.WaitGroup
	wg.Go(func() {
		lines := bufio.NewScanner(stdout)
		lines.Scan()
		greeting <- lines.Text() // "" if it ended without one
		_, _ = io.Copy(io.Discard, stdout)
	})
	wg.Go(func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			d.keep(lines.Text())
		}
	})
	wg.Wait()
	_ = d.cmd.Wait() // how it ended is looked at by those who ended it
	close(d.done)
}

func (d *Daemon) keep(text string) {
	l := line{At: time.Now(), Text: text}
	var about struct {
		Msg  string
		Part int
	}
	if json.Unmarshal([]byte(text), &about) == nil {
		l.Msg, l.Part = about.Msg, about.Part
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, l)
}

// awaitStore waits until the daemon has no open breaker or, if unavailable, at least one, at
// since or later, and returns when that began.
func (d *Daemon) awaitStore(unavailable bool, since time.Time, limit time.Duration) (at time.Time) {
	d.t.Helper()
	what := fmt.Sprintf("%s to close its breakers", d.url)
	if unavailable {
		what = fmt.Sprintf("%s to open a breaker", d.url)
	}
	Await(d.t, what, limit, func() error {
		var ok bool
		if at, ok = d.storeIs(unavailable, since); !ok {
			return errors.New("it has not; its log ends:\n" + d.logText())
		}
		return nil
	})
	return at
}

// The messages in a daemon's log when the breaker of a partition opens, and when it closes.
const (
	msgBreakerOpened = "store unavailable: circuit breaker opened"
	msgBreakerClosed = "store available again: circuit breaker closed"
)

// storeIs says whether the store was in a state at since or afterwards, and when that
// began.
func (d *Daemon) storeIs(unavailable bool, since time.Time) (began time.Time, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	parts := map[int]bool{} // those with an open breaker
	was := false
	for _, l := range d.log {
		if was == unavailable && !l.At.Before(since) {
			return began, true
		}
		switch l.Msg {
		case msgBreakerOpened:
			parts[l.Part] = true
		case msgBreakerClosed:
			delete(parts, l.Part)
		}
		if is := len(parts) > 0; is != was {
			was, began = is, l.At
		}
	}
	return began, was == unavailable
}

func (d *Daemon) logText() string {
	const most = 20
	d.mu.Lock()
	defer d.mu.Unlock()
	var b strings.Builder
	for _, line := range d.log[max(0, len(d.log)-most):] {
		b.WriteString(line.Text + "\n")
	}
	return b.String()
}

// PID returns its process.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Usage returns what the process has of the machine now.
func (d *Daemon) Usage() Usage {
	d.t.Helper()
	u, err := usageOf(d.PID())
	if err != nil {
		d.t.Fatalf("rig: %v", err)
	}
	return u
}

// Kill ends it by SIGKILL and waits for its end.
func (d *Daemon) Kill() {
	d.t.Helper()
	d.mu.Lock()
	d.killed = true
	d.mu.Unlock()
	d.signal(syscall.SIGKILL)
	d.awaitEnd()
}

// Tier is what a daemon with a store says of its work when it ends.
type Tier struct {
	Decisions struct {
		DenyCache int64 `json:"deny_cache"`
		Lease     int64 `json:"lease"`
		Store     int64 `json:"store"`
		Async     int64 `json:"async"`
		Fallback  int64 `json:"fallback"`
	} `json:"decisions"`
	StoreCalls int64 `json:"store_calls"`
	Unknown    int64 `json:"unknown"`
	Forfeited  int64 `json:"forfeited"`
	Lost       int64 `json:"lost"`
	Forgiven   int64 `json:"forgiven"`
	Nodes      int64 `json:"nodes"`
}

// Stop ends it by SIGTERM, fails the test if its exit code is not 0, and returns what
// it said of its work.
func (d *Daemon) Stop() Tier {
	d.t.Helper()
	d.Terminate()
	return d.AwaitEnd()
}

// Terminate sends SIGTERM. A second one ends a daemon at once.
func (d *Daemon) Terminate() {
	d.t.Helper()
	d.signal(syscall.SIGTERM)
}

// AwaitEnd is the rest of Stop.
func (d *Daemon) AwaitEnd() (tier Tier) {
	d.t.Helper()
	d.awaitEnd()
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		d.t.Errorf("rig: a daemon ended with exit code %d:\n%s", code, d.logText())
	}
	for _, line := range d.log { // it has ended: nobody writes to it
		if line.Msg != "tier" {
			continue
		}
		if err := json.Unmarshal([]byte(line.Text), &tier); err != nil {
			d.t.Errorf("rig: the log of a daemon: %v: %s", err, line.Text)
		}
	}
	return tier
}

func (d *Daemon) signal(sig os.Signal) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		d.t.Errorf("rig: %v to a daemon: %v", sig, err)
	}
}

func (d *Daemon) awaitEnd() {
	d.t.Helper()
	select {
	case <-d.done:
	case <-time.After(stopLimit):
		d.t.Errorf("rig: a daemon has not ended after %v:\n%s", stopLimit, d.logText())
	}
}

func (d *Daemon) cleanUp() {
	d.signal(syscall.SIGKILL)
	d.awaitEnd()
	if d.t.Failed() {
		d.t.Logf("the log of the daemon %s ends:\n%s", d.url, d.logText())
	}
}
