package budget

import (
	"context"
	"errors"
	"time"

	"github.com/weirlimit/weir/ruleset"
)

// terms are those on which charges are admitted now. An old observation does not keep an account paused.
func (a *Account) terms(ctx context.Context) ruleset.Terms {
	if a.Level() >= Paused {
		a.observeSometimes(ctx, nil)
	}
	return ruleset.Terms{Plan: a.plan(), Wait: a.Cooldown()}
}

// plan returns the plan by which charges are decided now.
func (a *Account) plan() string {
	if a.Level() >= Paused {
		return pausedPlan
	}
	return ""
}

// Level returns the level of utilisation at the last observation. Charges observe it several times a
// second, and Usage and ShouldPause at every call.
func (a *Account) Level() Level { return Level(a.level.Load()) }

// LevelChange is a change of the level of utilisation.
type LevelChange struct {
	At          time.Time
	Account     string
	From, To    Level
	Utilisation float64 // of the limit with the shortest period, averaged over a second; 1 is all of it
}

// observeEvery is how long charges let pass before they observe the utilisation again.
const observeEvery = 250 * time.Millisecond

// observeSometimes observes the utilisation if that is due. Charged are the costs of the charge that was just made.
func (a *Account) observeSometimes(ctx context.Context, charged []ruleset.Cost) {
	now, last := a.clock(), a.observed.Load()
	if int64(now)-last >= int64(observeEvery) && a.observed.CompareAndSwap(last, int64(now)) {
		a.observeNow(ctx, charged)
	}
}

// observeNow observes the utilisation. Of several failures in a row it logs the first.
func (a *Account) observeNow(ctx context.Context, charged []ruleset.Cost) {
	switch _, err := a.usage(ctx, charged); {
	case err == nil:
		a.blind.Store(false)
	case ctx.Err() == nil && !errors.Is(err, ErrRemoved) && !a.blind.Swap(true):
		a.config().Logger.Warn("budget: utilisation cannot be observed", "account", a.name, "error", err)
	}
}

// observe adds an observation, of which charged was used just now, and tells of a change of the level.
//
// After more than a second without observations nothing is known of the last second but what was used at its end.
// That counts for all of it, without what was charged just now: one burst does not pause anything.
func (a *Account) observe(used, charged, limit int64) float64 {
	now := a.clock()
	a.mu.Lock()
	if now-a.meter.last > meterSpan {
		a.meter = meter{}
		a.meter.add(now-meterSpan, used-charged, limit)
	}
	a.meter.add(now, used, limit)
	average := a.meter.average(now)
	from := a.Level()
	to, changed := a.gauge.observe(average, a.config().Thresholds.marks())
	a.level.Store(int32(to))
	share := float64(average) / full
	if changed {
		a.changes = append(a.changes, LevelChange{At: time.Unix(0, int64(now)), Account: a.name, From: from, To: to, Utilisation: share})
	}
	a.mu.Unlock()
	a.observed.Store(int64(now))
	if changed {
		a.tellAll()
	}
	return share
}

// tellAll tells of all changes, in their order. If somebody does that already, even the caller, from OnLevel, it
// leaves them to it.
func (a *Account) tellAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.telling {
		return
	}
	a.telling = true
	defer func() { a.telling = false }()
	for len(a.changes) > 0 {
		next := a.changes[0]
		a.changes = a.changes[1:]
		a.tellUnlocked(next)
	}
}

// tellUnlocked tells of a change without mu, which the caller holds.
func (a *Account) tellUnlocked(c LevelChange) {
	a.mu.Unlock()
	defer a.mu.Lock()
	a.tell(c)
}

func (a *Account) tell(c LevelChange) {
	if a.config().OnLevel != nil {
		a.config().OnLevel(c)
		return
	}
	log := a.config().Logger.Info
	if c.To > c.From {
		log = a.config().Logger.Warn
	}
	log("budget: utilisation "+c.To.String(), "account", c.Account, "from", c.From.String(), "utilisation", c.Utilisation)
}
