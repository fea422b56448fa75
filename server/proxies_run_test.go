//go:build linux

package server_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/config"
	"github.com/weirlimit/weir/server"
	"github.com/weirlimit/weir/store/memstore"
)

// integrations has the files that are tested.
const integrations = "../docs/integrations"

// setup is a proxy that runs a file of docs/integrations, with weir and an application.
type setup struct {
	t     *testing.T
	dir   string
	ports map[string]string // those of the files -> those that are used
	clock *clock
	table *memstore.Table // outlives weir, as Redis would
	app   *application

	conf string // weir's configuration

	stopWeir  func()
	weir      *server.Server // nil while it does not run
	addresses int            // that were given to clients
}

// newSetup starts everything but the proxy.
func newSetup(t *testing.T) *setup { return newSetupWith(t, "weir.yaml") }

// newSetupWith is newSetup with another configuration, and files that it reads.
func newSetupWith(t *testing.T, conf string, files ...string) *setup {
	t.Helper()
	s := &setup{t: t, dir: t.TempDir(), clock: newClock(), stopWeir: func() {}, conf: conf}
	s.ports = freePorts(t, "8000", "8080", "9000")
	table, err := memstore.New(memstore.Config{Now: s.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	s.table, s.app = table, newApplication()
	t.Cleanup(s.serve("9000", s.app))
	for _, name := range files {
		s.file(name)
	}
	s.startWeir()
	t.Cleanup(func() { s.stopWeir() })
	return s
}

// freePorts returns a port for each name. Systems take the ports of outgoing connections
// from 32,768 up, and redistest those below 30,000, so nobody takes one by chance while
// its server is down.
func freePorts(t *testing.T, names ...string) map[string]string {
	t.Helper()
	ports := map[string]string{}
	for range 1000 {
		port := strconv.Itoa(30_000 + rand.IntN(2_700))
		if !reserve(t, port) {
			continue
		}
		ports[names[len(ports)]] = port
		if len(ports) == len(names) {
			return ports
		}
	}
	t.Fatal("found no free port from 30000 to 32699")
	return nil
}

// reserve takes a port, if it is free, for the time of the test. A socket that has it in
// its name tells other runs of the tests that it is taken, also while nobody listens.
func reserve(t *testing.T, port string) bool {
	mark, err := net.Listen("unix", "@weir-proxies-test-"+port)
	if err != nil {
		return false
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		mark.Close()
		return false
	}
	l.Close()
	t.Cleanup(func() { mark.Close() })
	return true
}

// address returns where something is that has a port in the files.
func (s *setup) address(port string) string { return "127.0.0.1:" + s.ports[port] }

var filePorts = regexp.MustCompile(`\b(8000|8080|9000)\b`)

// file writes a file of docs/integrations to the directory, with other ports. That is all
// that is changed about it.
func (s *setup) file(name string) (path string) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(integrations, name))
	if err != nil {
		s.t.Fatal(err)
	}
	text = filePorts.ReplaceAllFunc(text, func(port []byte) []byte { return []byte(s.ports[string(port)]) })
	path = filepath.Join(s.dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// startWeir starts weir as weir.yaml says.
func (s *setup) startWeir() {
	s.t.Helper()
	c := s.config().Server()
	listens := make(chan struct{})
	c.Limiter, c.Log, c.OnListen = s.table, slog.New(slog.DiscardHandler), func(server.Bound) { close(listens) }
	srv, err := server.New(c)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	select {
	case <-listens:
	case err := <-ended:
		cancel()
		s.t.Fatal(err)
	}
	s.weir = srv
	s.stopWeir = func() {
		cancel()
		<-ended
		s.weir, s.stopWeir = nil, func() {}
	}
}

// config returns what weir.yaml says, changed by variables of the environment.
func (s *setup) config(environ ...string) *config.Config {
	s.t.Helper()
	c, err := config.Load(s.file(s.conf), environ)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// serve has a handler answer on a port of the files, until stop is called.
func (s *setup) serve(port string, h http.Handler) (stop func()) {
	s.t.Helper()
	l, err := net.Listen("tcp", s.address(port))
	if err != nil {
		s.t.Fatal(err)
	}
	hs := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() {
		defer close(done)
		hs.Serve(l)
	}()
	return func() {
		hs.Close()
		<-done
	}
}

// hang accepts connections on weir's port, and never answers.
func (s *setup) hang() (stop func()) {
	return s.serve("8080", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
}

// A command is how a server is run with one of the files.
type command struct {
	name string
	args func(dir, file string) []string
	also []string // further files that it reads
}

// run starts the proxy and waits until it listens. It ends with the test.
func (s *setup) run(c *command, file string) {
	s.t.Helper()
	s.t.Setenv("PATH", os.Getenv("PATH")+":/usr/local/sbin:/usr/sbin:/sbin") // a user's may leave them out
	program, err := exec.LookPath(c.name)
	if err != nil {
		s.t.Fatalf("there is no %s, which scripts/setup.sh installs: %v", c.name, err)
	}
	for _, name := range c.also {
		s.file(name)
	}
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close() // the process has its own copy
	cmd := exec.Command(program, c.args(s.dir, s.file(file))...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	cmd.Env = append(os.Environ(), "HOME="+s.dir, "XDG_CONFIG_HOME="+s.dir, "XDG_DATA_HOME="+s.dir) // Caddy writes there
	// If the tests end without their cleanups, nginx must end its worker, so no SIGKILL.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it was signalled
	}()
	s.t.Cleanup(func() {
		end(cmd.Process, ended)
		if s.t.Failed() {
			text, _ := os.ReadFile(log.Name())
			s.t.Logf("%s said:\n%s", c.name, text)
		}
	})
	s.awaitListening(ended)
}

// end asks a process to end, and kills it if it does not.
func end(p *os.Process, ended <-chan struct{}) {
	_ = p.Signal(syscall.SIGTERM) // an error means that it has ended
	select {
	case <-ended:
	case <-time.After(3 * time.Second):
		_ = p.Kill()
		<-ended
	}
}

func (s *setup) awaitListening(ended <-chan struct{}) {
	s.t.Helper()
	await(s.t, "the proxy to listen", func() error {
		select {
		case <-ended:
			s.t.Fatal("the proxy has ended")
		default:
		}
		conn, err := net.Dial("tcp", s.address("8000"))
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// await asks check again and again until it returns nil.
func await(t *testing.T, what string, check func() error) {
	t.Helper()
	const limit = 10 * time.Second
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Since(began) > limit {
			t.Fatalf("waited %v for %s: %v", limit, what, err)
		}
	}
}
