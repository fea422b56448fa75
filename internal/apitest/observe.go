package apitest

import (
	"time"

	"github.com/weirlimit/weir/guard"
)

// Each returns what observes decisions on several items by one that observes single ones.
func Each(observe func(*guard.Record)) func(items []guard.Item, verdicts []guard.Verdict, took time.Duration) {
	return func(items []guard.Item, verdicts []guard.Verdict, took time.Duration) {
		for i := range items {
			q := &items[i].Query
			observe(&guard.Record{Verdict: verdicts[i], Key: q.Key, Cost: q.Cost, Client: q.Client, Peek: items[i].Peek, Took: took})
			took = guard.Untimed // it was one measurement
		}
	}
}
