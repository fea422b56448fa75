package redisbacked

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/internal/socket"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/store/redisstore"
	"github.com/weirlimit/weir/tiered"
)

// weirName is the subject that goals are for.
const weirName = "weir Store.Take"

// weirTake is redisstore.Store.Take with its defaults, but over the daemon's sockets.
func weirTake() library {
	return library{name: weirName, kind: harness.Weir, open: func(addr string, settings []setting) (limiter, error) {
		return openWeir(redisstore.Config{Redis: daemons(addr)}, settings)
	}}
}

// weirNet is the same over connections of package net, which is the default. Its prefix keeps
// its keys apart from weirTake's, and they are as long.
func weirNet() library {
	return library{name: "weir, package net", kind: harness.Weir, open: func(addr string, settings []setting) (limiter, error) {
		return openWeir(redisstore.Config{Redis: redisstore.Server{Addrs: []string{addr}}, Prefix: "wnet:"}, settings)
	}}
}

// daemons is the server at addr, connected to as the daemon does.
func daemons(addr string) redisstore.Server {
	return redisstore.Server{Addrs: []string{addr}, Dial: socket.Dial}
}

func openWeir(c redisstore.Config, settings []setting) (limiter, error) {
	policies, err := policiesOf(settings)
	if err != nil {
		return limiter{}, err
	}
	s, err := redisstore.New(context.Background(), c)
	if err != nil {
		return limiter{}, err
	}
	return limiter{
		take: func(ctx context.Context, which int, key string) (bool, error) {
			d, err := s.Take(ctx, policies[which], key, 1)
			return d.Allowed, err
		},
		commands: func() int64 { return s.Stats().Commands },
		close:    s.Close,
	}, nil
}

func policiesOf(settings []setting) (policies []*weir.Policy, err error) {
	for i, s := range settings {
		p, err := weir.NewPolicy(fmt.Sprintf("bench%d", i), s.limit())
		if err != nil {
			return nil, err
		}
		policies = append(policies, p)
	}
	return policies, nil
}

// limit returns the setting as a GCRA limit.
func (s setting) limit() weir.Limit {
	l := weir.Limit{Name: "main", Rate: 1, Per: weir.Every(s.every), Burst: s.burst, Algorithm: weir.GCRA}
	if s.every < time.Second {
		l.Rate, l.Per = int64(time.Second/s.every), weir.Every(time.Second)
	}
	return l
}

// patience is how long go-redis waits for an answer. Callers who never stop leave the
// goroutines that talk to Redis waiting for a processor for longer than weir's default
// of 10 ms, after which it answers without.
const patience = 3 * time.Second

// tier is tiered.Limiter over a store of its own, with one node, the peers' patience and
// otherwise the defaults.
func tier(mode tiered.Mode) library {
	return library{
		name: "weir, " + mode.String(), kind: harness.Weir,
		open: func(addr string, settings []setting) (limiter, error) { return openTier(addr, settings, mode) },
	}
}

func openTier(addr string, settings []setting, mode tiered.Mode) (limiter, error) {
	policies, err := policiesOf(settings)
	if err != nil {
		return limiter{}, err
	}
	store, err := redisstore.New(context.Background(), redisstore.Config{
		Redis: daemons(addr), Prefix: fmt.Sprintf("weir:%v:", mode), Timeout: patience,
	})
	if err != nil {
		return limiter{}, err
	}
	local, err := memstore.New(memstore.Config{MaxKeys: tiered.DefaultMaxKeys})
	if err != nil {
		return limiter{}, err
	}
	l, err := tiered.New(tiered.Config{Store: store, Local: local, Mode: mode, Nodes: 1, Timeout: patience})
	if err != nil {
		return limiter{}, err
	}
	return limiter{
		take: func(ctx context.Context, which int, key string) (bool, error) {
			d, err := l.Take(ctx, policies[which], key, 1)
			return d.Allowed, err
		},
		commands: func() int64 { return l.Stats().StoreCalls },
		guesses:  func() int64 { return l.Stats().Fallback },
		close: func() {
			l.Close()
			store.Close()
		},
	}, nil
}
