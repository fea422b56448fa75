package apitest

import (
	"time"

	"github.com/weirlimit/weir/ruleset"
)

// Each returns an observer of batches that passes each decision to observe.
func Each(observe func(*ruleset.Record)) func(items []ruleset.Item, verdicts []ruleset.Verdict, took time.Duration) {
	return func(items []ruleset.Item, verdicts []ruleset.Verdict, took time.Duration) {
		for i := range items {
			r := ruleset.NewRecord(&items[i].Query, &verdicts[i], items[i].Peek, took)
			observe(&r)
			took = ruleset.Untimed // it was one measurement
		}
	}
}
