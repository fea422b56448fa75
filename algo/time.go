package algo

import "math"

// Instants are Unix nanoseconds in an int64. Every rule here works from Epoch
// to Horizon; an instant outside is moved to the nearer end, so a clock that
// was never set stalls a limiter instead of opening it. Beyond Horizon nothing that
// was used comes back by waiting, so what is refused then, or could be admitted only
// then, may be retried Never. Slots alone go by the expiry of holds, at any time.
const (
	// Epoch is 2020-01-01T00:00:00Z, the zero of every packed time.
	Epoch int64 = 1_577_836_800_000_000_000

	// Horizon lies a hundred years (36,525 days) after Epoch.
	Horizon int64 = Epoch + 36_525*day

	// Never is later than every instant: the retry time of a charge that
	// waiting cannot help, and the expiry of a hold that has none.
	Never int64 = math.MaxInt64

	// MaxCost is the greatest cost of one charge, and MaxRate the greatest
	// rate or burst. Both leave room for every product below to fit 128 bits.
	MaxCost int64 = 1<<31 - 1
	MaxRate int64 = 1<<53 - 1

	// MaxPer is the longest period: 40 years.
	MaxPer = 40 * year
)

const (
	day  int64 = 86_400_000_000_000
	year int64 = 31_557_600_000_000_000 // 365.25 days, so 100 of them are Horizon - Epoch
)

// sinceEpoch returns now as nanoseconds after Epoch, moved into the range that
// the rules work in.
func sinceEpoch(now int64) uint64 {
	n := uint64(now - Epoch)
	if n > uint64(Horizon-Epoch) {
		return clampedSinceEpoch(now)
	}
	return n
}

// reachable returns at or, if that lies beyond Horizon, Never.
func reachable(at int64) int64 {
	if at > Horizon {
		return Never
	}
	return at
}

// inRange returns now, moved into the range that the rules work in.
func inRange(now int64) int64 { return min(max(now, Epoch), Horizon) }

// clampedSinceEpoch is the rare half of sinceEpoch, apart so that the common
// half is inlined.
func clampedSinceEpoch(now int64) uint64 {
	if now < Epoch {
		return 0
	}
	return uint64(Horizon - Epoch)
}
