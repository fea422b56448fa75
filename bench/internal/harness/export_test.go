package harness

// BusyTime is busyTime, for tests.
var BusyTime = busyTime

// Quietest is Survey.quietest, with what disturbs.
func (s Survey) Quietest(ask func() ([]float64, error), watch func() func() float64) ([]float64, bool, error) {
	return s.quietest(ask, watch)
}
