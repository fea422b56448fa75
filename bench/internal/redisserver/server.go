package redisserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// program is looked for in PATH.
const program = "redis-server"

const (
	startTries = 5 // ports that others may take before the server does
	startLimit = 10 * time.Second
	startPoll  = 10 * time.Millisecond
)

// Server is a redis-server of our own, on a port of the loopback interface, that saves
// nothing. It ends with this process.
type Server struct {
	// Addr is where it listens, for example "127.0.0.1:43210".
	Addr string

	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended
	admin *redis.Client // asks how it is, and measures nothing
}

// Start starts a server and waits until it answers. The error is harness.Missing if the
// machine has none.
func Start() (*Server, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, harness.Missing{What: program}
	}
	var problem error
	for range startTries {
		s, err := launch(path)
		if err != nil {
			return nil, err
		}
		if problem = s.awaitAnswer(); problem == nil {
			return s, nil
		}
		s.Stop()
	}
	return nil, problem
}

func launch(path string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), ended: make(chan struct{})}
	s.cmd = exec.Command(path, "--port", strconv.Itoa(port), "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--dir", os.TempDir())
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // it must not outlive us
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	s.admin = redis.NewClient(&redis.Options{Addr: s.Addr, PoolSize: 1, MaxRetries: -1})
	go func() {
		_ = s.cmd.Wait() // a killed server is no error
		close(s.ended)
	}()
	return s, nil
}

// freePort returns a port that was free just before.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// awaitAnswer waits until the server answers, and not somebody else who was quicker
// to take the port.
func (s *Server) awaitAnswer() error {
	for end := time.Now().Add(startLimit); ; time.Sleep(startPoll) {
		pid, err := s.info("Server", "process_id")
		switch {
		case err == nil && int(pid) == s.cmd.Process.Pid:
			return nil
		case err == nil:
			return fmt.Errorf("process %.0f answers on %s instead of %s", pid, s.Addr, program)
		case s.hasEnded():
			return fmt.Errorf("%s on %s ended at once", program, s.Addr)
		case time.Now().After(end):
			return fmt.Errorf("%s on %s does not answer: %w", program, s.Addr, err)
		}
	}
}

func (s *Server) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// Stop ends the server and waits for that.
func (s *Server) Stop() {
	_ = s.admin.Close()
	_ = s.cmd.Process.Kill() // if it has ended already, so much the better
	<-s.ended
}

// CPUTime returns the processor time that the server has had, the kernel's work for
// it included.
func (s *Server) CPUTime() (time.Duration, error) {
	user, err := s.info("CPU", "used_cpu_user")
	if err != nil {
		return 0, err
	}
	system, err := s.info("CPU", "used_cpu_sys")
	return time.Duration((user + system) * float64(time.Second)), err
}

var errNoField = errors.New("INFO does not say")

// info returns a number that the server tells of itself.
func (s *Server) info(section, field string) (float64, error) {
	all, err := s.admin.InfoMap(context.Background(), section).Result()
	if err != nil {
		return 0, err
	}
	text, ok := all[section][field]
	if !ok {
		return 0, fmt.Errorf("%w: %s", errNoField, field)
	}
	return strconv.ParseFloat(text, 64)
}

// Version returns the program's version, for example "redis-server 7.0.15", or that
// there is none.
func Version() string {
	out, err := exec.Command(program, "--version").Output()
	if err != nil {
		return "no " + program
	}
	for _, field := range strings.Fields(string(out)) {
		if v, ok := strings.CutPrefix(field, "v="); ok {
			return program + " " + v
		}
	}
	return program
}
