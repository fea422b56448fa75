package keyed

import (
	"context"
	"sync"
	"time"

	"github.com/didip/tollbooth/v8"
	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/memstore"
	ululelimit "github.com/ulule/limiter/v3"
	ululestore "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// peers returns the other libraries, each with the cheapest call of its own that
// answers yes or no for a key. What they offer to forget old keys is off: it
// would only cost them.
func peers() []store {
	return []store{sethvargo(), throttledGCRA(), ulule(), toll(), chi(), xTimeMap()}
}

func sethvargo() store {
	return store{name: "sethvargo", kind: harness.Peer, module: "github.com/sethvargo/go-limiter", open: func(s setting) (opened, error) {
		l, err := memorystore.New(&memorystore.Config{Tokens: uint64(s.units), Interval: s.per, DisablePurge: true})
		if err != nil {
			return opened{}, err
		}
		ctx := context.Background()
		return opened{take: func(keys string) (admitted int) {
			for ; keys != ""; keys = keys[keyLen:] {
				if _, _, _, ok, err := l.Take(ctx, keys[:keyLen]); ok && err == nil {
					admitted++
				}
			}
			return admitted
		}}, nil
	}}
}

// throttledGCRA may try its compare-and-swap as often as need be. By default it
// reports an error after ten attempts, which a contended key may well take.
func throttledGCRA() store {
	return store{name: "throttled", kind: harness.Peer, module: "github.com/throttled/throttled/v2", open: func(s setting) (opened, error) {
		keep, err := throttledstore.NewCtx(0) // a map without bound; with one it is a list as well
		if err != nil {
			return opened{}, err
		}
		quota := throttled.RateQuota{MaxRate: throttled.PerDuration(int(s.units), s.per), MaxBurst: int(s.units) - 1}
		l, err := throttled.NewGCRARateLimiterCtx(keep, quota)
		if err != nil {
			return opened{}, err
		}
		l.SetMaxCASAttemptsLimit(1 << 30)
		ctx := context.Background()
		return opened{take: func(keys string) (admitted int) {
			for ; keys != ""; keys = keys[keyLen:] {
				if limited, _, err := l.RateLimitCtx(ctx, keys[:keyLen], 1); !limited && err == nil {
					admitted++
				}
			}
			return admitted
		}}, nil
	}}
}

// ulule puts a prefix before each key, which is empty here.
func ulule() store {
	return store{name: "ulule", kind: harness.Peer, module: "github.com/ulule/limiter/v3", open: func(s setting) (opened, error) {
		keep := ululestore.NewStoreWithOptions(ululelimit.StoreOptions{})
		l := ululelimit.New(keep, ululelimit.Rate{Period: s.per, Limit: s.units})
		ctx := context.Background()
		return opened{take: func(keys string) (admitted int) {
			for ; keys != ""; keys = keys[keyLen:] {
				if c, err := l.Get(ctx, keys[:keyLen]); !c.Reached && err == nil {
					admitted++
				}
			}
			return admitted
		}}, nil
	}}
}

func toll() store {
	return store{name: "tollbooth", kind: harness.Peer, module: "github.com/didip/tollbooth/v8", open: func(s setting) (opened, error) {
		l := tollbooth.NewLimiter(s.perSecond(), nil).SetBurst(int(s.units))
		return opened{take: func(keys string) (admitted int) {
			for ; keys != ""; keys = keys[keyLen:] {
				if !l.LimitReached(keys[:keyLen]) {
					admitted++
				}
			}
			return admitted
		}}, nil
	}}
}

// chi is httprate's local counter. The library's own decision is for HTTP and
// writes headers; this is the same without them.
func chi() store {
	return store{name: "httprate", kind: harness.Peer, module: "github.com/go-chi/httprate", open: func(s setting) (opened, error) {
		l := newTwoWindows(s)
		return opened{take: func(keys string) (admitted int) {
			for ; keys != ""; keys = keys[keyLen:] {
				if l.allow(keys[:keyLen]) {
					admitted++
				}
			}
			return admitted
		}}, nil
	}}
}

// twoWindows decides as httprate.RateLimiter does: two windows are read and one
// is written, under a mutex that makes it one step. The counter knows a key by a
// 64-bit hash.
type twoWindows struct {
	limit   setting
	mu      sync.Mutex
	counter httprate.LimitCounter
}

func newTwoWindows(s setting) *twoWindows {
	counter := httprate.NewLocalLimitCounter(s.per)
	counter.Config(int(s.units), s.per)
	return &twoWindows{limit: s, counter: counter}
}

func (w *twoWindows) allow(key string) bool {
	per := w.limit.per
	now := time.Now().UTC()
	window := now.Truncate(per)
	w.mu.Lock()
	defer w.mu.Unlock()
	current, previous, err := w.counter.Get(key, window, window.Add(-per))
	share := float64(per-now.Sub(window)) / float64(per) // of the previous window that still counts
	if err != nil || float64(previous)*share+float64(current)+1 > float64(w.limit.units) {
		return false
	}
	return w.counter.IncrementBy(key, window, 1) == nil
}

// xTimeMap is what many programs have: x/time's limiters in a map with a mutex.
func xTimeMap() store {
	return store{name: "x/time/rate in a map", kind: harness.Peer, module: "golang.org/x/time", open: func(s setting) (opened, error) {
		m := &rateMap{limit: s, limiters: make(map[string]*rate.Limiter)}
		take := func(keys string) (admitted int) {
			for ; keys != ""; keys = keys[keyLen:] {
				if m.get(keys[:keyLen]).Allow() {
					admitted++
				}
			}
			return admitted
		}
		return opened{take: take, size: func() int { return len(m.limiters) }}, nil
	}}
}

type rateMap struct {
	limit    setting
	mu       sync.Mutex // guards limiters
	limiters map[string]*rate.Limiter
}

func (m *rateMap) get(key string) *rate.Limiter {
	m.mu.Lock()
	l := m.limiters[key]
	if l == nil {
		l = rate.NewLimiter(rate.Limit(m.limit.perSecond()), int(m.limit.units))
		m.limiters[key] = l
	}
	m.mu.Unlock()
	return l
}
