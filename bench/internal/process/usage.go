package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// CPUTime returns the processor time that the process has had, the kernel's work for it
// included, in ticks of 10 ms.
func (p *Process) CPUTime() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	return cpuTime(text)
}

// cpuTime reads a line of /proc/PID/stat: after the program's name in parentheses, the 12th
// and 13th fields are the ticks in user and kernel mode.
func cpuTime(stat []byte) (time.Duration, error) {
	const user, kernel, tick = 11, 12, 10 * time.Millisecond
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= kernel {
		return 0, fmt.Errorf("a process's stat is %q", stat)
	}
	var sum time.Duration
	for _, field := range []string{fields[user], fields[kernel]} {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("a process's stat is %q: %w", stat, err)
		}
		sum += time.Duration(ticks) * tick
	}
	return sum, nil
}

// Memory returns how many bytes of memory the process has now (RSS).
func (p *Process) Memory() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	return residentSize(string(text))
}

// residentSize finds VmRSS in /proc/PID/status, which is in KiB.
func residentSize(status string) (int64, error) {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var kib int64
			_, err := fmt.Sscanf(value, "%d kB", &kib)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("a process's status has no VmRSS: %q", status)
}
