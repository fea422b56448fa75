package apitest

import (
	"time"

	"github.com/weirlimit/weir/guard"
)

// Each returns an observer of batches that passes each decision to observe.
func Each(observe func(*guard.Record)) func(items []guard.Item, verdicts []guard.Verdict, took time.Duration) {
	return func(items []guard.Item, verdicts []guard.Verdict, took time.Duration) {
		for i := range items {
			q := &items[i].Query
			observe(&guard.Record{Verdict: verdicts[i], Key: q.Key, Cost: q.Cost, Client: q.Client, Peek: items[i].Peek, Took: took})
			took = guard.Untimed // it was one measurement
		}
	}
}
