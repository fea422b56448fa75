package apitest

import (
	"time"

	"github.com/weirlimit/weir/ruleset"
)

// Each returns an observer of batches that passes each decision to observe.
func Each(observe func(*ruleset.Record)) func(items []ruleset.Item, verdicts []ruleset.Verdict, took time.Duration) {
	return func(items []ruleset.Item, verdicts []ruleset.Verdict, took time.Duration) {
		for i := range items {
			q := &items[i].Query
			observe(&ruleset.Record{Verdict: verdicts[i], Key: q.Key, Cost: q.Cost, Client: q.Client, Class: items[i].Rule.ClassOf(q), Peek: items[i].Peek, Took: took})
			took = ruleset.Untimed // it was one measurement
		}
	}
}
