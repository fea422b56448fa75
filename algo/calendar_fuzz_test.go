package algo_test

import (
	"testing"

	"github.com/weirlimit/weir/algo"
)

// FuzzCalendar looks for an instant that the minutes before it contradict.
func FuzzCalendar(f *testing.F) {
	f.Add(uint8(0), uint8(0), algo.Epoch)
	f.Add(uint8(7), uint8(0), instant(f, "2024-03-10T05:00:00Z"))  // Havana: no midnight
	f.Add(uint8(5), uint8(2), instant(f, "2023-10-01T04:00:00Z"))  // Asunción: none on the first of a month
	f.Add(uint8(23), uint8(1), instant(f, "2021-03-21T20:30:00Z")) // Tehran: none on a Monday
	f.Add(uint8(26), uint8(3), instant(f, "2040-12-31T23:00:00Z")) // Berlin: golang/go#81583
	f.Add(uint8(37), uint8(3), algo.Horizon)
	f.Fuzz(func(t *testing.T, zone, unit uint8, now int64) {
		c := algo.NewCalendar(units[int(unit)%len(units)], loadZone(t, zones[int(zone)%len(zones)]))
		checkCalendar(t, c, min(max(now, algo.Epoch), algo.Horizon))
	})
}
