package faults

import (
	"fmt"
	"os"
)

// machine counts what the processors did since it was made. Times that were measured
// while others had them tell little about weir.
type machine struct{ idle, all float64 }

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
	return m
}

// idleSince returns the share of the time since an earlier look in which processors had
// nothing to do, 0 to 1.
func (m machine) idleSince(before machine) float64 {
	if m.all <= before.all {
		return 0
	}
	return (m.idle - before.idle) / (m.all - before.all)
}
