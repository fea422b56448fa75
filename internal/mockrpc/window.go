package mockrpc

import "time"

// Instants are durations since the start of the provider, and never go back.

// span is over which time the preset Alchemy counts, and Stats.
const span = 10 * time.Second

// limit is one limit of an account.
type limit interface {
	// wait returns how long it is until the limit has room for a number of units, at most capacity.
	wait(now time.Duration, units int64) time.Duration

	// take charges units for which there is room.
	take(now time.Duration, units int64)

	// capacity is the most that the limit ever admits at once.
	capacity() int64
}

// rolling admits at most so many units in any period, exactly: a unit that is admitted at t counts until just
// before t + period. It keeps a log of what was admitted in the last period.
type rolling struct {
	most   int64
	period time.Duration

	log  []admission // in the order of time
	used int64       // the sum of the log
	peak int64       // the largest used so far
}

type admission struct {
	at    time.Duration
	units int64
}

func (r *rolling) capacity() int64 { return r.most }

// expire forgets what does not count any more.
func (r *rolling) expire(now time.Duration) {
	for len(r.log) > 0 && r.log[0].at+r.period <= now {
		r.used -= r.log[0].units
		r.log = r.log[1:] // append moves the rest once the array is full
	}
}

func (r *rolling) wait(now time.Duration, units int64) time.Duration {
	r.expire(now)
	excess := r.used + units - r.most
	if excess <= 0 {
		return 0
	}
	for _, a := range r.log {
		if excess -= a.units; excess <= 0 {
			return a.at + r.period - now
		}
	}
	return r.period // not reached: units are at most the capacity
}

func (r *rolling) take(now time.Duration, units int64) {
	r.expire(now)
	if last := len(r.log) - 1; last >= 0 && r.log[last].at == now {
		r.log[last].units += units
	} else if units > 0 {
		r.log = append(r.log, admission{now, units})
	}
	r.used += units
	r.peak = max(r.peak, r.used)
}

// bucket holds up to size units and is refilled with rate units per second. It starts full. Its level is
// counted in billionths of a unit, of which each nanosecond brings rate.
type bucket struct {
	rate, size int64

	missing int64         // billionths of a unit until it is full
	at      time.Duration // when that was so
}

const billion = int64(time.Second)

func newBucket(rate int64, fillTime time.Duration) *bucket {
	return &bucket{rate: rate, size: rate * int64(fillTime/time.Second)}
}

func (b *bucket) capacity() int64 { return b.size }

func (b *bucket) refill(now time.Duration) {
	elapsed := min(int64(now-b.at), b.size*billion/b.rate) // which fills any bucket; the product cannot overflow
	b.missing = max(0, b.missing-elapsed*b.rate)
	b.at = now
}

func (b *bucket) wait(now time.Duration, units int64) time.Duration {
	b.refill(now)
	lacking := b.missing + units*billion - b.size*billion
	if lacking <= 0 {
		return 0
	}
	return time.Duration((lacking + b.rate - 1) / b.rate)
}

func (b *bucket) take(now time.Duration, units int64) {
	b.refill(now)
	b.missing += units * billion
}
