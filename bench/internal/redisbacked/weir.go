package redisbacked

import (
	"context"
	"fmt"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/store/redisstore"
)

// weirName is the subject that goals are for.
const weirName = "weir Store.Take"

// weirTake is redisstore.Store.Take with its defaults.
func weirTake() library {
	return library{name: weirName, kind: harness.Weir, open: openWeir}
}

func openWeir(addr string, settings []setting) (limiter, error) {
	var policies []*weir.Policy
	for i, s := range settings {
		p, err := weir.NewPolicy(fmt.Sprintf("bench%d", i), s.limit())
		if err != nil {
			return limiter{}, err
		}
		policies = append(policies, p)
	}
	s, err := redisstore.New(context.Background(), redisstore.Config{Redis: redisstore.Server{Addrs: []string{addr}}})
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

// limit returns the setting as a GCRA limit.
func (s setting) limit() weir.Limit {
	return weir.Limit{Name: "main", Rate: 1, Per: weir.Every(s.every), Burst: s.burst, Algorithm: weir.GCRA}
}
