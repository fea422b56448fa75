package rig

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
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

// Connections returns how many connections there are to a port of this machine, those
// in the making and those that the other side has closed included.
func Connections(port int) (n int, err error) {
	const header, remote, state = 1, 2, 3 // /proc/net/tcp: a line of titles, then such fields
	live := []string{"01", "02", "08"}    // established, SYN sent, close wait
	text, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return 0, err
	}
	for i, line := range strings.Split(string(text), "\n") {
		fields := strings.Fields(line)
		if i < header || len(fields) <= state {
			continue
		}
		if strings.HasSuffix(fields[remote], fmt.Sprintf(":%04X", port)) && slices.Contains(live, fields[state]) {
			n++
		}
	}
	return n, nil
}
