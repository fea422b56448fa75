package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/weirlimit/weir/internal/golden"
	"github.com/weirlimit/weir/internal/redistest"
)

func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"weir": weirMain})
}

// weirMain is the program that scripts run. The daemon's policy is per hour if they
// say SLOW=1, so that what is refused stays refused however slow the machine is. On such
// a machine Redis has a minute for an answer, unless they say REDIS_TIMEOUT.
func weirMain() {
	if os.Getenv("SLOW") == "1" {
		os.Setenv("WEIR__POLICIES__DEFAULT__LIMITS", "[{rate: 100, per: 1h}]")
	}
	if slices.Contains(os.Args, "--redis") {
		os.Setenv("WEIR__STORE__REDIS__TIMEOUT", cmp.Or(os.Getenv("REDIS_TIMEOUT"), "1m"))
	}
	os.Exit(Main(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// leakChecked runs the tests and then looks for goroutines that they left.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// TestScripts runs weir as a program. Besides testscript's commands there are
// serve, mock, check, post, get, grpc, until, signal, await and logged.
func TestScripts(t *testing.T) {
	redis := redistest.Start(t, redistest.Password("default", "secret"))
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		UpdateScripts:       golden.Updating(),
		Setup: func(env *testscript.Env) error {
			env.Values[daemonKey{}] = new(*daemon)
			env.Setenv(noRaceSleep())
			env.Setenv("REDIS", redis.Addr())
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve":  cmdServe,
			"mock":   cmdMock,
			"post":   cmdPost,
			"check":  cmdCheck,
			"signal": cmdSignal,
			"await":  cmdAwait,
			"logged": cmdLogged,
			"get":    cmdGet,
			"grpc":   cmdGRPC,
			"until":  cmdUntil,
		},
	})
}

// noRaceSleep is what keeps programs with the race detector from sleeping for a
// second before they end.
func noRaceSleep() (name, value string) {
	return "GORACE", strings.TrimSpace(os.Getenv("GORACE") + " atexit_sleep_ms=10")
}

// daemon is a weir serve or a weir mock. Scripts have the one that they started last.
type daemon struct {
	url    string
	cmd    *exec.Cmd
	out    *bufio.Reader // what it prints after the first line
	stderr syncBuffer
	read   int // how much of stderr cmdLogged has seen
}

// A syncBuffer may be read while it is being written to.
type syncBuffer struct {
	mu  sync.Mutex // guards the field below
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

type daemonKey struct{}

func daemonOf(ts *testscript.TestScript) *daemon { return *ts.Value(daemonKey{}).(**daemon) }

var firstLine = regexp.MustCompile(`^weir \S+ is listening on (https?://\S+|unix:.+)\n$`)

// startDaemon starts weir serve on a free port, in a directory and with additions to
// this process's environment. Whoever gets one calls kill in the end, also with an error.
func startDaemon(dir string, env []string, args ...string) (*daemon, error) {
	return startProgram(dir, env, append([]string{"serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0"}, args...)...)
}

// startProgram starts weir with arguments that make it listen, as startDaemon does.
func startProgram(dir string, env []string, args ...string) (*daemon, error) {
	cmd := exec.Command("weir", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	d := &daemon{cmd: cmd}
	cmd.Stderr = &d.stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return d, err
	}
	if err := cmd.Start(); err != nil {
		return d, err
	}
	d.out = bufio.NewReader(out)
	line, err := d.out.ReadString('\n')
	m := firstLine.FindStringSubmatch(line)
	if m == nil {
		return d, fmt.Errorf("first line %q, error %w, stderr %s", line, err, d.stderr.String())
	}
	d.url = m[1]
	return d, nil
}

// kill ends a daemon that still runs.
func (d *daemon) kill() {
	if d.cmd.Process != nil && d.cmd.ProcessState == nil {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
	}
}

// signal signals the daemon and waits for its end. It returns what it printed and its
// exit code, -1 if it was killed.
func (d *daemon) signal(sig os.Signal) (printed string, code int, err error) {
	if err := d.cmd.Process.Signal(sig); err != nil {
		return "", 0, err
	}
	text, err := io.ReadAll(d.out)
	if err != nil {
		return "", 0, err
	}
	var exit *exec.ExitError
	if err := d.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return "", 0, err
	}
	return string(text), d.cmd.ProcessState.ExitCode(), nil
}

// cmdServe is "serve [flag...]": it starts weir serve on a free port and puts its
// address into $URL.
func cmdServe(ts *testscript.TestScript, _ bool, args []string) {
	var env []string
	for _, name := range []string{"SLOW", "GORACE", "REDIS", "WEIR_REDIS_PASSWORD", "TOKEN", "WORKER", "ALCHEMY_1", "ALCHEMY_2"} {
		env = append(env, name+"="+ts.Getenv(name))
	}
	d, err := startDaemon(ts.MkAbs("."), env, args...)
	ts.Defer(d.kill)
	ts.Check(err)
	*ts.Value(daemonKey{}).(**daemon) = d
	ts.Setenv("URL", d.url)
}

// cmdGRPC is "grpc": it puts the address for gRPC into $GRPC.
func cmdGRPC(ts *testscript.TestScript, _ bool, _ []string) {
	cmdLogged(ts, false, []string{grpcAddress.String()})
	ts.Setenv("GRPC", grpcAddress.FindStringSubmatch(daemonOf(ts).stderr.String())[1])
}

var grpcAddress = regexp.MustCompile(`msg=listening .*\bgrpc=(\S+)`)

// cmdMock is "mock [flag...]": it starts weir mock jsonrpc as cmdServe does weir serve.
func cmdMock(ts *testscript.TestScript, _ bool, args []string) {
	d, err := startProgram(ts.MkAbs("."), []string{"GORACE=" + ts.Getenv("GORACE")}, append([]string{"mock", "jsonrpc", "--listen", "127.0.0.1:0"}, args...)...)
	ts.Defer(d.kill)
	ts.Check(err)
	*ts.Value(daemonKey{}).(**daemon) = d
	ts.Setenv("URL", d.url)
}

// cmdCheck is "check body": it posts body to /v1/check and prints the answer.
func cmdCheck(ts *testscript.TestScript, neg bool, args []string) {
	cmdPost(ts, neg, []string{"/v1/check", args[0]})
}

// cmdPost is "post path body": it prints the status and the body of the answer.
func cmdPost(ts *testscript.TestScript, _ bool, args []string) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post(ts.Getenv("URL")+args[0], "application/json", strings.NewReader(args[1]))
	ts.Check(err)
	defer resp.Body.Close()
	fmt.Fprintln(ts.Stdout(), resp.StatusCode)
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
}

// cmdSignal is "signal name code": it signals the daemon, waits for its end,
// checks its exit code (-1 if it was killed) and prints what it printed.
func cmdSignal(ts *testscript.TestScript, _ bool, args []string) {
	d := daemonOf(ts)
	signals := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}
	printed, code, err := d.signal(signals[args[0]])
	ts.Check(err)
	fmt.Fprint(ts.Stdout(), printed)
	fmt.Fprint(ts.Stderr(), d.stderr.String())
	if got := fmt.Sprint(code); got != args[1] {
		ts.Fatalf("exit code %s, want %s: %s", got, args[1], d.stderr.String())
	}
}

// cmdLogged is "logged regexp": it waits until the daemon has logged a line that matches. The
// next one looks at later lines only. "logged -hup regexp" sends SIGHUP before.
func cmdLogged(ts *testscript.TestScript, _ bool, args []string) {
	d := daemonOf(ts)
	if args[0] == "-hup" {
		ts.Check(d.cmd.Process.Signal(syscall.SIGHUP))
		args = args[1:]
	}
	want := regexp.MustCompile(args[0])
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		text := d.stderr.String()
		if at := want.FindStringIndex(text[d.read:]); at != nil {
			d.read += at[1]
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%s was not logged: %s", want, text[d.read:])
		}
	}
}

// cmdGet is "get path": it prints the status and the body.
func cmdGet(ts *testscript.TestScript, _ bool, args []string) {
	status, body := get(ts, args[0])
	fmt.Fprintf(ts.Stdout(), "%d\n%s", status, body)
}

func get(ts *testscript.TestScript, path string) (status int, body []byte) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(ts.Getenv("URL") + path)
	ts.Check(err)
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	ts.Check(err)
	return resp.StatusCode, body
}

// cmdUntil is "until path regexp": it gets again and again, until the body matches.
func cmdUntil(ts *testscript.TestScript, _ bool, args []string) {
	want := regexp.MustCompile(args[1])
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		_, body := get(ts, args[0])
		if want.Match(body) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%s does not say %s: %s", args[0], want, body)
		}
	}
}

// cmdAwait is "await file": it removes the file twice, and each time waits until
// the daemon has written it again. The second time it began to after the command
// did, so what was counted before is in it.
func cmdAwait(ts *testscript.TestScript, _ bool, args []string) {
	file := ts.MkAbs(args[0])
	for range 2 {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			ts.Fatalf("%v", err)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat(file); err == nil {
				break
			}
			if time.Now().After(end) {
				ts.Fatalf("%s was not written: %s", file, daemonOf(ts).stderr.String())
			}
		}
	}
}
