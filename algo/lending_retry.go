package algo

// retryAt assumes that holds run to their expiry. Between two expiries what is available to a
// class rises until the whole is full, and then falls as the levels of the others fill up; so
// it is looked for in the rise, expiry by expiry.
func (l *Lending) retryAt(s *State, hs *Holds, now, cost int64) int64 {
	i := l.class(hs)
	if cost > l.capacityOf(i) {
		return Never
	}
	v := l.at(s, hs, now)
	for h := range hs.all() {
		if h.Expiry <= now {
			continue
		}
		if at, ok := v.rises(i, cost, hs.charging.hold, h.Expiry); ok {
			return max(now, reachable(at))
		}
		if h.Expiry == Never {
			return Never
		}
		v.refill(h.Expiry)
		v.end(h, hs)
	}
	if at, ok := v.rises(i, cost, hs.charging.hold, Never); ok {
		return max(now, reachable(at))
	}
	return Never
}

// rises returns when cost fits class i before an instant, if nothing changes but the levels.
//
// What is available changes at a constant rate until some level becomes full, a class has paid
// what it owes, or the surplus or the balance changes its sign. From one such instant to the next
// it is looked at once.
func (v lender) rises(i int, cost int64, hold bool, before int64) (int64, bool) {
	need := mulCap(cost, v.rule.per)
	if hold && !v.mayHold(i, cost) {
		return 0, false
	}
	for {
		missing := need - v.available(i)
		if missing <= 0 {
			return v.Levels.at, v.Levels.at < before
		}
		slope, steady := v.slope(i)
		if slope > 0 && steady > 0 && (missing+slope-1)/slope <= steady {
			at := addInstants(v.Levels.at, (missing+slope-1)/slope)
			return at, at < before
		}
		at := addInstants(v.Levels.at, max(1, steady))
		if steady == Never || at >= before || at > Horizon {
			return 0, false
		}
		v.refill(at)
	}
}

// addInstants returns at + dt, at most Never.
func addInstants(at, dt int64) int64 {
	if dt > Never-at {
		return Never
	}
	return at + dt
}

// slope returns how fast what is available to class i changes, in parts per nanosecond, and for
// how many nanoseconds it certainly does. Never means that it stays so.
func (v *lender) slope(i int) (slope, steady int64) {
	all, steady := refilling(v.all, v.capAll(), v.rule.rate, Never)
	surplus, sum, own := all, all, int64(0)
	for j := range v.rule.shares {
		var rate int64
		rate, steady = refilling(v.of[j], v.most[j], v.rule.shares[j].rate, steady)
		sum -= rate
		switch {
		case v.of[j] >= 0:
			surplus -= rate
		case rate > 0:
			steady = min(steady, -v.of[j]/rate)
		}
		if j == i {
			own = rate
		}
	}
	switch borrows := v.borrows(i); {
	case !borrows && !v.rule.shares[i].NoBorrow:
		steady = min(steady, v.lendAt-v.Levels.at)
	case borrows && v.of[i] < 0:
		return surplus, steady
	case borrows:
		var is bool
		if is, steady = lasts(v.surplus(), surplus, steady); is {
			return surplus + own, steady
		}
	}
	enough, steady := lasts(v.balance(), sum, steady)
	if !enough {
		own += sum
	}
	return own, steady
}

// lasts reports whether a level that changes at a rate is about to be 0 or more, and for how long
// that does not change, at most steady.
func lasts(level, rate, steady int64) (bool, int64) {
	if level > 0 && rate < 0 || level < 0 && rate > 0 {
		steady = min(steady, level/-rate)
	}
	return level > 0 || level == 0 && rate >= 0, steady
}

// refilling returns the rate at which a level rises, and the time for which that is so, at most
// steady.
func refilling(level, most, rate, steady int64) (int64, int64) {
	if level >= most || rate == 0 {
		return 0, steady
	}
	return rate, min(steady, (most-level)/rate)
}
