package rig

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
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
	if err != nil {
		return u, err
	}
	u.CPU, err = cpuOf(pid)
	return u, err
}

// cpuOf reads /proc/PID/stat: after the program's name in parentheses, the 12th and 13th
// fields are the ticks in user and kernel mode, of which there are 100 per second.
func cpuOf(pid int) (time.Duration, error) {
	const user, kernel, tick = 11, 12, 10 * time.Millisecond
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) <= kernel {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, text)
	}
	var ticks [2]int64
	for i, field := range []string{fields[user], fields[kernel]} {
		if ticks[i], err = strconv.ParseInt(field, 10, 64); err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
	}
	return time.Duration(ticks[0]+ticks[1]) * tick, nil
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

// A cpuSet is the processors that a thread may run on.
type cpuSet [16]uint64

func only(cpu int) (set cpuSet) {
	set[cpu/64%len(set)] |= 1 << (cpu % 64)
	return set
}

// bindTo has this thread run on some processors, if it may, and returns where it ran
// before.
func bindTo(set cpuSet) (before cpuSet) {
	const size = unsafe.Sizeof(set)
	_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, size, uintptr(unsafe.Pointer(&before)))
	_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, size, uintptr(unsafe.Pointer(&set)))
	return before
}

// sleep has this thread sleep, without Go's timers.
func sleep(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&ts, nil)
}
