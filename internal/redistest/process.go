package redistest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	stopGrace = 3 * time.Second // from SIGTERM to SIGKILL
	killGrace = 5 * time.Second // a killed process ends at once, unless the kernel is stuck
)

// process is one run of redis-server.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// startProcess runs the command in dir, with its output at the end of log.
func startProcess(dir, log string, command ...string) (*process, error) {
	out, err := os.OpenFile(filepath.Join(dir, log), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the process has its own copy
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	endWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // a killed server is no error
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// signal sends sig. To a process that has ended it does nothing.
func (p *process) signal(sig syscall.Signal) error {
	err := p.cmd.Process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// kill ends the process, paused or not, and waits for its end.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	if !p.endsWithin(killGrace) {
		return errors.New("still there after SIGKILL")
	}
	return nil
}

// stop asks the process to end, and kills it if it does not. A paused process
// could not hear the question.
func (p *process) stop() error {
	if err := errors.Join(p.signal(syscall.SIGTERM), p.signal(syscall.SIGCONT)); err != nil {
		return err
	}
	if p.endsWithin(stopGrace) {
		return nil
	}
	return p.kill()
}

func (p *process) endsWithin(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		return false
	}
}
