//go:build linux

package integrations

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/server"
)

// program is an example, with what runs it: "" for what was built.
type program struct {
	interpreter, file string
	grpc              bool
}

var programs = []program{
	{"", "redis-go", false},
	{"python3", "redis-python.py", false},
	{"node", "redis-node.js", false},
	{"perl", "redis-perl.pl", false},
	{"", "grpc-go", true},
	{"node", "grpc-node.js", true},
}

// quick makes refusals of weir.yaml's policy last 100 ms instead of 2 s.
const (
	quick = "WEIR__POLICIES__API__LIMITS__0__PER=500ms"
	retry = 100 * time.Millisecond
)

// What they print while the store fails twice, then admits five and refuses the sixth.
const story = `job 1: no decision, backing off
job 1: no decision, backing off
job 1: done, 4 left
job 2: done, 3 left
job 3: done, 2 left
job 4: done, 1 left
job 5: done, 0 left
job 6: refused, waiting 100 ms
job 6: done, 0 left
`

// early is how much sooner a timer of Node.js may end than requested.
const early = 2 * time.Millisecond

// The programs run as they are. Only the address is another.
func TestPrograms(t *testing.T) {
	t.Parallel()
	eachProgram(t, func(t *testing.T, p program) {
		store := newPatient(t)
		store.failures = 2
		out, stderr, code := p.run(t, addressOf(serve(t, store, "weir.yaml", quick), p.grpc))
		if diff := cmp.Diff(story, out); diff != "" || code != 0 || stderr != "" {
			t.Fatalf("code %d, %q, (-want +got):\n%s", code, stderr, diff)
		}
		wantWaited(t, store.gaps())
	})
}

// wantWaited looks at how long a program waited after each of the story's lines.
func wantWaited(t *testing.T, gaps []time.Duration) {
	t.Helper()
	want := map[int]time.Duration{0: 50 * time.Millisecond, 1: 100 * time.Millisecond, 7: retry}
	if len(gaps) != 8 {
		t.Fatalf("it called %d times, want 9", len(gaps)+1)
	}
	for i, least := range want {
		if gaps[i] < least-early {
			t.Errorf("after call %d it waited %v, want %v at least", i+1, gaps[i], least)
		}
	}
}

// Where waiting cannot help they say so and end.
func TestProgramsGiveUp(t *testing.T) {
	t.Parallel()
	eachProgram(t, func(t *testing.T, p program) {
		store := newPatient(t)
		store.hopeless = true
		out, stderr, code := p.run(t, addressOf(serve(t, store, "weir.yaml"), p.grpc))
		if out != "" || code == 0 || !strings.HasSuffix(stderr, "job 1: refused, and waiting cannot help\n") {
			t.Errorf("code %d, %q, %q", code, out, stderr)
		}
		if len(store.calls) != 1 {
			t.Errorf("it called %d times", len(store.calls))
		}
	})
}

// Without a daemon they end after five pauses.
func TestProgramsWithoutWeir(t *testing.T) {
	t.Parallel()
	want := strings.Repeat("job 1: no decision, backing off\n", 5)
	address := refusing(t)
	eachProgram(t, func(t *testing.T, p program) {
		out, stderr, code := p.run(t, address)
		if out != want || code == 0 || stderr == "" {
			t.Errorf("code %d, %q, %q", code, out, stderr)
		}
	})
}

// refusing returns an address that is taken and refuses connections.
func refusing(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
}

// The README has each of the programs, and the output of those that are refused once.
func TestReadme(t *testing.T) {
	t.Parallel()
	text := readFile(t, "README.md")
	for _, p := range programs {
		if !strings.Contains(text, "]("+p.file) {
			t.Errorf("the README does not mention %s", p.file)
		}
	}
	_, output, _ := strings.Cut(story, "backing off\njob 1: no decision, backing off\n")
	if output = strings.Replace(output, "100 ms", "2000 ms", 1); !strings.Contains(text, "```\n"+output+"```\n") {
		t.Errorf("the README does not show\n%s", output)
	}
}

func addressOf(b server.Bound, grpc bool) string {
	if grpc {
		return b.GRPC.String()
	}
	return b.RESP.String()
}

// eachProgram runs a test for all programs at once: most of the time they wait.
func eachProgram(t *testing.T, test func(t *testing.T, p program)) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, p := range programs {
		all.Go(func() { t.Run(p.file, func(t *testing.T) { test(t, p) }) })
	}
}

// command returns how the program is run.
func (p program) command(ctx context.Context, t *testing.T) *exec.Cmd {
	t.Helper()
	if p.interpreter != "" {
		return exec.CommandContext(ctx, interpreter(t, p.interpreter), p.file)
	}
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return exec.CommandContext(ctx, filepath.Join(dir, p.file))
}

// run returns what the program prints, and its exit code.
func (p program) run(t *testing.T, address string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := p.command(ctx, t)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = environment(t, "WEIR_ADDR="+address)
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatalf("it did not end:\n%s%s", &out, &errs)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}
