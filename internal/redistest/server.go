package redistest

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Files in a server's directory.
const (
	confFile   = "redis.conf"
	logFile    = "redis.log"
	socketFile = "redis.sock"
)

// Server is one redis-server.
type Server struct {
	t    testing.TB // set by newServer, like the next three
	set  settings
	dir  string
	mode []string // arguments after the configuration file
	port int      // set before the caller gets the server

	mu     sync.Mutex // guards the fields below
	proc   *process   // the latest run
	paused bool
}

// Start starts a server and waits until it answers.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := newServer(t, newSettings(opts))
	s.awaitReady()
	return s
}

// newServer starts a server without waiting for it.
func newServer(t testing.TB, set settings, mode ...string) *Server {
	t.Helper()
	// Not t.TempDir: the path of a socket has 107 bytes at most.
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	s := &Server{t: t, set: set, dir: dir, mode: mode}
	t.Cleanup(s.cleanUp)
	if set.tls {
		if err := s.keyring().write(dir); err != nil {
			t.Fatalf("redistest: certificates: %v", err)
		}
	}
	s.moveToFreePort()
	s.launch()
	return s
}

// cleanUp kills rather than stops: nothing that a server could still save is wanted.
func (s *Server) cleanUp() {
	s.Kill()
	if s.t.Failed() && s.process() != nil {
		s.t.Logf("the log of redis-server %s ends:\n%s", s.Addr(), s.logTail())
	}
	givePortBack(s.port)
	if err := os.RemoveAll(s.dir); err != nil {
		s.t.Errorf("redistest: %v", err)
	}
}

// moveToFreePort chooses a port and configures the server for it.
func (s *Server) moveToFreePort() {
	s.t.Helper()
	givePortBack(s.port)
	port, err := takePort()
	if err != nil {
		s.t.Fatal(err)
	}
	s.port = port
	s.writeConf()
}

func (s *Server) writeConf() {
	s.t.Helper()
	text := strings.Join(s.set.lines(s.port), "\n") + "\n"
	if err := os.WriteFile(s.path(confFile), []byte(text), 0o600); err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
}

// launch starts the process. It leaves the configuration as it is: Redis and
// Sentinel write to theirs, and a restart must find it.
func (s *Server) launch() {
	s.t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		s.t.Fatalf("redistest: this test needs redis-server 7.0 or later, for example from "+
			"apt-get install redis-server: %v", err)
	}
	proc, err := startProcess(s.dir, logFile, append([]string{program, confFile}, s.mode...)...)
	if err != nil {
		s.t.Fatalf("redistest: start %s: %v", program, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc, s.paused = proc, false
}

// awaitReady waits until a new server answers. If another process was quicker to
// take the port, it starts the server on another one.
func (s *Server) awaitReady() {
	s.t.Helper()
	for range 10 {
		err := s.awaitAnswer()
		if err == nil {
			return
		}
		if !errors.Is(err, errPortTaken) {
			s.t.Fatalf("redistest: %v", err)
		}
		s.moveToFreePort()
		s.launch()
	}
	s.t.Fatal("redistest: others took ten free ports before redis-server did")
}

var errPortTaken = errors.New("another process has the port")

func (s *Server) awaitAnswer() error {
	proc := s.process()
	end := time.Now().Add(startLimit)
	for {
		err := s.answers(proc.pid())
		switch {
		case err == nil:
			return nil
		case proc.ended():
			return s.whyEnded()
		case time.Now().After(end):
			return fmt.Errorf("redis-server on %s does not answer within %v: %w", s.Addr(), startLimit, err)
		}
		time.Sleep(pollEvery)
	}
}

// answers asks for more than a PONG: another process may have been quicker to take
// the port, and a server that loads a file is not ready.
func (s *Server) answers(pid int) error {
	server, err := s.info(pollTimeout, "server")
	if err != nil {
		return err
	}
	if got := server["process_id"]; got != strconv.Itoa(pid) {
		return fmt.Errorf("process %s answers, not %d", got, pid)
	}
	persistence, err := s.info(pollTimeout, "persistence")
	if err != nil {
		return err
	}
	if persistence["loading"] == "1" {
		return errors.New("it loads its data")
	}
	return nil
}

func (s *Server) whyEnded() error {
	tail := s.logTail()
	if strings.Contains(tail, "Address already in use") {
		return fmt.Errorf("%w %d", errPortTaken, s.port)
	}
	return fmt.Errorf("redis-server on %s ended before it answered:\n%s", s.Addr(), tail)
}

// Addr returns host:port.
func (s *Server) Addr() string { return loopback(s.port) }

// Port returns the port of Addr. It stays the same over Restart.
func (s *Server) Port() int { return s.port }

// Socket returns the path of the socket of a server with [UnixSocket].
func (s *Server) Socket() string { return s.path(socketFile) }

// Do executes a command on a connection of its own, logged in as [Password] says. It
// returns an [Error] if that is the reply, wrapped, and a network error after 5 s at most.
func (s *Server) Do(args ...string) (Reply, error) { return s.do(commandTimeout, args...) }

// MustDo is Do for commands that work.
func (s *Server) MustDo(args ...string) Reply {
	s.t.Helper()
	r, err := s.Do(args...)
	if err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
	return r
}

func (s *Server) do(limit time.Duration, args ...string) (Reply, error) {
	conn, err := s.dial(limit)
	if err != nil {
		return Reply{}, fmt.Errorf("%s: %w", args[0], err)
	}
	defer conn.Close()
	c := newClient(conn)
	if s.set.password != "" {
		if _, err := c.do("AUTH", s.set.userName(), s.set.password); err != nil {
			return Reply{}, fmt.Errorf("AUTH at %s: %w", s.Addr(), err)
		}
	}
	r, err := c.do(args...)
	if err != nil {
		return r, fmt.Errorf("%s at %s: %w", args[0], s.Addr(), err)
	}
	return r, nil
}

// dial returns a connection that fails after limit.
func (s *Server) dial(limit time.Duration) (net.Conn, error) {
	s.t.Helper()
	end := time.Now().Add(limit)
	conn, err := (&net.Dialer{Deadline: end}).Dial("tcp", s.Addr())
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(end); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if !s.set.tls {
		return conn, nil
	}
	config := s.TLSConfig()
	config.ServerName = "127.0.0.1"
	return tls.Client(conn, config), nil
}

// Kill ends the server by SIGKILL, as a crash would, and waits for its end.
func (s *Server) Kill() {
	s.t.Helper()
	if proc := s.process(); proc != nil {
		s.check("kill", proc.kill())
	}
}

// Stop ends the server by SIGTERM, as an operator would, and by SIGKILL after 3 s.
func (s *Server) Stop() {
	s.t.Helper()
	s.check("stop", s.process().stop())
}

// Restart starts the server again on the same port, after Kill if it still runs. Its
// data are gone, unless [Config] has it keep them.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.launch()
	if err := s.awaitAnswer(); err != nil {
		s.t.Fatalf("redistest: restart: %v", err)
	}
}

// Pause stops the server in its tracks until Resume. The system goes on accepting
// connections for it, and nobody gets an answer.
func (s *Server) Pause() {
	s.t.Helper()
	s.setPaused(true, syscall.SIGSTOP)
}

// Resume ends a Pause. The server then executes what was sent to it meanwhile.
func (s *Server) Resume() {
	s.t.Helper()
	s.setPaused(false, syscall.SIGCONT)
}

func (s *Server) setPaused(paused bool, sig syscall.Signal) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.check(sig.String(), s.proc.signal(sig))
	s.paused = paused
}

// up says whether the server can answer: it runs and is not paused.
func (s *Server) up() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.paused && !s.proc.ended()
}

func (s *Server) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// check reports without ending the goroutine, which may not be the test's.
func (s *Server) check(what string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Errorf("redistest: %s of redis-server %s: %v", what, s.Addr(), err)
	}
}

func (s *Server) path(file string) string { return filepath.Join(s.dir, file) }

// logTail returns the last lines of the log.
func (s *Server) logTail() string {
	const most = 40
	text, err := os.ReadFile(s.path(logFile))
	if err != nil {
		return err.Error()
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-most):], nil))
}
