package cli

import (
	"context"
	"log/slog"
	"time"
)

// clockEvery is how often the daemon looks whether the wall clock has stepped. With
// mono.MinStep, which is the most that it is behind otherwise, it makes calendar windows begin
// within a second of the wall clock. Looking more often would wake up an idle machine.
const clockEvery = 900 * time.Millisecond

// followClock calls catchUp every so often until ctx ends, so that limits follow a wall clock
// that was set forward, or that went on while the machine was suspended. One that was set back
// is not followed: no time counts twice.
func followClock(ctx context.Context, log *slog.Logger, catchUp func() time.Duration) {
	tick := time.NewTicker(clockEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if step := catchUp(); step > 0 {
				log.Warn("the wall clock has stepped forward, or the machine was suspended; limits count that as time that has passed", "by", step)
			}
		}
	}
}
