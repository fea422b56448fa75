package harness

import "time"

// BusyTime is busyTime, for tests.
var BusyTime = busyTime

// Quietest is Survey.quietest, with what others had.
func (s Survey) Quietest(ask func() ([]float64, error), others func() (time.Duration, bool)) ([]float64, bool, error) {
	return s.quietest(ask, others)
}
