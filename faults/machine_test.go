package faults

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// machine is what the processors have done so far.
type machine struct {
	idle, all float64       // of all processors, in ticks
	own       time.Duration // by this process and its children that have ended
}

// look reads the first line of /proc/stat: ticks in user, nice, system and idle mode,
// waiting for disks, and others. Elsewhere than on Linux nothing is known.
func look() (m machine) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return m
	}
	var ticks [8]float64
	_, err = fmt.Sscanf(string(text), "cpu %g %g %g %g %g %g %g %g",
		&ticks[0], &ticks[1], &ticks[2], &ticks[3], &ticks[4], &ticks[5], &ticks[6], &ticks[7])
	if err != nil {
		return m
	}
	for _, t := range ticks {
		m.all += t
	}
	m.idle = ticks[3] + ticks[4]
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var usage syscall.Rusage
		if syscall.Getrusage(who, &usage) == nil {
			m.own += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
		}
	}
	return m
}

// othersSince returns the part of the processors' time since an earlier look, 0 to 1,
// that neither this process nor its children had, and that was not idle.
func (m machine) othersSince(before machine) float64 {
	const tick = 10 * time.Millisecond
	all := m.all - before.all
	if all <= 0 {
		return 0
	}
	own := float64(m.own-before.own) / float64(tick)
	return max(0, all-(m.idle-before.idle)-own) / all
}
