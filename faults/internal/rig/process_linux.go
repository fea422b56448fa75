package rig

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// endWithParent has the kernel kill the daemon if the test process dies without running
// its cleanups.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// usageOf reads /proc.
func usageOf(pid int) (u Usage, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "VmRSS":
			_, err = fmt.Sscanf(value, "%d kB", &u.RSS)
			u.RSS *= 1024
		case "Threads":
			_, err = fmt.Sscan(value, &u.Threads)
		}
		if err != nil {
			return u, fmt.Errorf("%q: %w", line, err)
		}
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	u.FDs = int64(len(files))
	return u, err
}
