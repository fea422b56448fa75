package process

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	startLimit = 15 * time.Second
	startPoll  = 5 * time.Millisecond
	lastWords  = 4 << 10 // bytes of what a process wrote that are kept
)

// Process is a server that was started. It ends with this process.
type Process struct {
	name  string // set by Start, like all of it
	cmd   *exec.Cmd
	said  *tail
	ended chan struct{} // closed when it has ended
}

// ErrEnded means that a process ended instead of listening, perhaps because somebody was
// quicker to take its address.
var ErrEnded = errors.New("ended at once")

// Start starts a server and waits until it accepts connections at all addresses. What it
// writes is thrown away, but for the end of it, which is part of the error if it fails.
func Start(cmd *exec.Cmd, addrs ...string) (*Process, error) {
	p := &Process{name: cmd.Path, cmd: cmd, said: &tail{}, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.said, p.said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // it must not outlive us
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	go func() {
		_ = cmd.Wait() // a killed server is no error
		close(p.ended)
	}()
	for _, addr := range addrs {
		if err := p.await(addr); err != nil {
			p.Stop()
			return nil, err
		}
	}
	return p, nil
}

func (p *Process) await(addr string) error {
	for end := time.Now().Add(startLimit); ; {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s does not listen on %s after %v: %s", p.name, addr, startLimit, p.said)
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s %w: %s", p.name, ErrEnded, p.said)
		case <-time.After(startPoll):
		}
	}
}

// Stop kills the process and waits for its end.
func (p *Process) Stop() {
	_ = p.cmd.Process.Kill() // if it has ended already, so much the better
	<-p.ended
}

// Ports that servers are given: below those that the kernel gives to clients, of which a
// survey has so many that one would soon have a server's.
const (
	firstPort = 20_000
	ports     = 12_000
	portTries = 100
)

// FreeAddr returns an address of the loopback interface that was free just before.
func FreeAddr() (string, error) {
	var problem error
	for range portTries {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(ports)))
		l, err := net.Listen("tcp", addr)
		if err == nil {
			return addr, l.Close()
		}
		problem = err
	}
	return "", problem
}

// A tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex // guards the field below
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if over := len(t.text) - lastWords; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.text))
}
