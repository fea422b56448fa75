package harness

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A case of several goroutines measures a limiter under contention. While the
// machine gives one of our cores to somebody else there is none: a mutex that
// no other core writes is cheap, and the best run of a contended case would be one
// in which nothing contended. So such a run counts only if no other program had the
// cores meanwhile: no other process, and no other machine on the same host.
const (
	quietTries = 10                    // how often a disturbed run is made before it counts anyway
	quietSpare = 2                     // repetitions that a run may have on average; more would be hopeless, and take hours
	quietMost  = 10 * time.Millisecond // what others may have had of a run: one tick of the kernel's
)

// A survey's answers take seconds, in which others always have something.
const (
	askTries  = 4  // how often a disturbed subject is asked
	quietPart = 50 // others may have had that part of one core, and quietMost
)

// disturbance watches what happens besides a survey's answer. What it returns says,
// in seconds, for how long the machine stood still and how much more of the cores
// others had than they may; 0 is quiet.
func disturbance() (end func() float64) {
	began := time.Now()
	before, known := others()
	still := watchStandstill()
	return func() float64 {
		lost := still.end()
		after, _ := others()
		if !known {
			return lost.Seconds()
		}
		return lost.Seconds() + excess(after-before, time.Since(began)).Seconds()
	}
}

// excess returns how much more than they may others had of the cores.
func excess(had, elapsed time.Duration) time.Duration {
	return max(0, had-quietMost-elapsed/quietPart)
}

// Watch is for those who answer together. What it returns says how much more than they
// may others had of the cores since, but for the processor time of a server that the
// survey has itself; 0 is quiet, and so is a system that does not tell.
func Watch() (end func(server time.Duration) (disturbed time.Duration)) {
	began := time.Now()
	before, known := others()
	return func(server time.Duration) time.Duration {
		after, _ := others()
		if !known {
			return 0
		}
		return excess(after-before-server, time.Since(began))
	}
}

// others returns the processor time that all other programs have had since the machine
// started, and false where the system does not tell.
func others() (time.Duration, bool) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, false
	}
	busy, ok := busyTime(string(stat))
	if !ok {
		return 0, false
	}
	own, err := CPUTime()
	return busy - own, err == nil
}

// CPUTime returns the processor time that this process has had, the kernel's work
// for it included.
func CPUTime() (time.Duration, error) {
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return 0, err
	}
	return time.Duration(own.Utime.Nano() + own.Stime.Nano()), nil
}

// busyTime adds up the first line of /proc/stat but for idle, iowait and guests,
// which are in user already. What the host gave to other machines is steal.
func busyTime(stat string) (time.Duration, bool) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, false
	}
	var ticks int64
	for _, i := range []int{1, 2, 3, 6, 7, 8} { // user, nice, system, irq, softirq, steal
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, false
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, true
}
