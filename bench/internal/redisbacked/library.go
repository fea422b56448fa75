package redisbacked

import (
	"context"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// A setting is the limit of a key: so many units at once, of which one comes back
// after each period.
type setting struct {
	burst int64
	every time.Duration
}

var (
	// plenty admits every call. A unit comes back so slowly that no key is
	// forgotten between two calls, and so many come at once that none is refused.
	plenty = setting{burst: 20_000_000, every: 45 * time.Second}

	// fast admits every call, too, as long as there are less than ten million a
	// second.
	fast = setting{burst: 10_000_000, every: 100 * time.Nanosecond}

	// once admits a call per second.
	once = setting{burst: 1, every: time.Second}

	// scarce admits one call per key.
	scarce = setting{burst: 1, every: time.Hour}
)

// admits says what is expected of a call, if it is known.
func (s setting) admits() (admitted, known bool) { return s == plenty || s == fast, s != once }

// A library is a way to limit with Redis.
type library struct {
	name   string // as in harness.Subject, like the next two
	kind   harness.Kind
	module string

	// open connects a limiter to the server at addr, where it finds no keys of its
	// own. It has one limit for each setting.
	open func(addr string, settings []setting) (limiter, error)
}

// A limiter takes from keys.
type limiter struct {
	// take asks for one unit of key, which has the limit of settings[which]. Any
	// number of goroutines may call it.
	take func(ctx context.Context, which int, key string) (admitted bool, err error)

	// commands returns how many commands were sent so far.
	commands func() int64

	// guesses returns how many answers were given so far without Redis having been
	// asked in time, which are no decisions; nil means none.
	guesses func() int64

	close func()
}
