package adminapi

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/golden"
	"github.com/weirlimit/weir/ruleset"
)

// jobs is a policy of which the classes realtime and backfill each have a part.
func jobs() ruleset.Policy {
	return ruleset.Policy{Name: "jobs", Limits: []ruleset.Limit{
		{Limit: weir.Limit{Rate: 10, Per: weir.Every(time.Second), Classes: weir.ClassesOf(
			weir.Class{Name: "realtime", Guaranteed: 6, Burst: 5}, weir.Class{Name: "backfill", Guaranteed: 4, NoBorrow: true},
		)}},
		{Limit: weir.Limit{Name: "month", Rate: 31_000, Per: weir.Calendar(weir.Month, nil), Pace: "backfill"}},
	}}
}

// Operators see the classes of a policy, what each has left, and which one was charged. An override
// keeps their parts.
func TestClasses(t *testing.T) {
	frozen(t, func(t *testing.T) {
		d := newDaemon(t, jobs())
		d.records <- d.check("jobs", ruleset.Query{Key: "alice", Cost: 3, Class: "realtime"})
		d.records <- d.check("jobs", ruleset.Query{Key: "alice", Cost: 4})
		d.records <- d.check("jobs", ruleset.Query{Key: "alice", Cost: 1, Class: "backfill"})
		close(d.records)
		got := d.converse(
			"GET /admin/v1/keys?policy=jobs&key=alice&class=realtime",
			"GET /admin/v1/keys?policy=jobs&key=alice&class=backfill",
			"GET /admin/v1/keys?policy=jobs&key=alice",
			"GET /admin/v1/keys?policy=jobs&key=alice&class=urgent",
			"GET /admin/v1/keys?policy=slots&key=alice&class=realtime",
			`PUT /admin/v1/keys/override {"policy":"jobs","key":"bob","limits":[{"rate":5,"per":"1s"}],"until":"never"}`,
			"GET /admin/v1/keys?policy=jobs&key=bob&class=backfill",
			"GET /admin/v1/policies",
		)
		events := d.send("GET /admin/v1/events?policy=jobs").Body.Bytes()
		golden.Check(t, "testdata/classes.golden", slices.Concat(got, events))
	})
}
