package redistest

import (
	"os/exec"
	"syscall"
)

// endWithParent has the kernel kill the server if the test process dies without
// running its cleanups: a time-out, a panic, an interrupt. Strictly, it looks at the
// thread that started the server, but the Go runtime keeps its threads.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
