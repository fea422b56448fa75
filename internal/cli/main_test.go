package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){
		"weir": func() { os.Exit(Main(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) },
	})
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
// serve, check and signal.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		UpdateScripts:       *update,
		Setup: func(env *testscript.Env) error {
			env.Values[daemonKey{}] = &daemon{}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve":  cmdServe,
			"check":  cmdCheck,
			"signal": cmdSignal,
		},
	})
}

// daemon is the weir serve of one script.
type daemon struct {
	cmd    *exec.Cmd
	out    *bufio.Reader // what it prints after the first line
	stderr bytes.Buffer
}

type daemonKey struct{}

func daemonOf(ts *testscript.TestScript) *daemon { return ts.Value(daemonKey{}).(*daemon) }

var greeting = regexp.MustCompile(`^weir \S+ is listening on (http://\S+)\n$`)

// cmdServe is "serve [flag...]": it starts weir serve on a free port and puts its
// address into $URL.
func cmdServe(ts *testscript.TestScript, _ bool, args []string) {
	d := daemonOf(ts)
	d.cmd = exec.Command("weir", append([]string{"serve", "--http", "127.0.0.1:0"}, args...)...)
	d.cmd.Stderr = &d.stderr
	out, err := d.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(d.cmd.Start())
	ts.Defer(func() {
		if d.cmd.ProcessState == nil {
			d.cmd.Process.Kill()
			d.cmd.Wait()
		}
	})
	d.out = bufio.NewReader(out)
	line, err := d.out.ReadString('\n')
	m := greeting.FindStringSubmatch(line)
	if m == nil {
		ts.Fatalf("first line %q, error %v", line, err)
	}
	ts.Setenv("URL", m[1])
}

// cmdCheck is "check body": it posts body to /v1/check and prints the answer.
func cmdCheck(ts *testscript.TestScript, _ bool, args []string) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post(ts.Getenv("URL")+"/v1/check", "application/json", strings.NewReader(args[0]))
	ts.Check(err)
	defer resp.Body.Close()
	fmt.Fprintln(ts.Stdout(), resp.StatusCode)
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
}

// cmdSignal is "signal name code": it signals the daemon, waits for its end,
// checks its exit code and prints what it printed.
func cmdSignal(ts *testscript.TestScript, _ bool, args []string) {
	d := daemonOf(ts)
	signals := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM}
	ts.Check(d.cmd.Process.Signal(signals[args[0]]))
	_, err := io.Copy(ts.Stdout(), d.out)
	ts.Check(err)
	var exit *exec.ExitError
	if err := d.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		ts.Check(err)
	}
	fmt.Fprint(ts.Stderr(), d.stderr.String())
	if got := fmt.Sprint(d.cmd.ProcessState.ExitCode()); got != args[1] {
		ts.Fatalf("exit code %s, want %s: %s", got, args[1], d.stderr.String())
	}
}
