package config

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/identity"
)

// Classes are in the order of the file, and percentages are of the rate of the limit that has them.
func TestClasses(t *testing.T) {
	live := parseGood(t, "classes.yaml").Live()
	if got := live.Clients[0].Grants; !cmp.Equal(got, identity.Grants{Policies: identity.Patterns{"jobs"}, Classes: identity.Patterns{"realtime", "b*"}}) {
		t.Errorf("%+v", got)
	}
	policies := live.Policies
	list := func(realtime, batch, backfill int64) []weir.Class {
		return []weir.Class{
			{Name: "realtime", Guaranteed: realtime, Burst: 100},
			{Name: "batch", Guaranteed: batch, NoBorrow: true},
			{Name: "backfill", Guaranteed: backfill},
		}
	}
	jobs := policies[0]
	if got := jobs.Limits[0]; got.Algorithm != weir.Lending || !cmp.Equal(got.Classes.List(), list(300, 166, 0)) {
		t.Errorf("%v %v", got.Algorithm, got.Classes.List())
	}
	if got := jobs.Limits[1]; got.Pace != "batch,backfill" {
		t.Errorf("pace is %q", got.Pace)
	}
	if got := jobs.Overrides[0].Limits[0].Classes; got != (weir.Classes{}) {
		t.Errorf("the override of alice has classes: %v", got.List())
	}
	bob := []weir.Class{{Name: "backfill", Guaranteed: 1000}, {Name: "realtime"}, {Name: "batch"}}
	if got := jobs.Overrides[1].Limits[0]; !cmp.Equal(got.Classes.List(), bob) {
		t.Errorf("the override of bob has %v", got.Classes.List())
	}
	want := []weir.Class{{Name: "urgent", Guaranteed: 200}, {Name: "later", Guaranteed: 100}}
	if got := policies[1].Limits[0]; !cmp.Equal(got.Classes.List(), want) {
		t.Errorf("%v", got.Classes.List())
	}
	if got := policies[2].Limits[0]; got.Algorithm != weir.GCRA || got.Classes != (weir.Classes{}) {
		t.Errorf("%+v", got)
	}
}

// A share is rounded down, and never overflows.
func TestShareOfRate(t *testing.T) {
	for _, tt := range []struct {
		text       string
		rate, want int64
	}{
		{"60%", 500, 300},
		{"33.33%", 500, 166},
		{"0.01%", 9999, 0},
		{"0%", 500, 0},
		{"100%", algo.MaxRate, algo.MaxRate},
		{"99.99%", math.MaxInt64, 9222449699651090329},
		{"7", 500, 7},
		{"0", 500, 0},
	} {
		s := new(Share)
		if err := s.set(tt.text); err != nil {
			t.Errorf("%s: %v", tt.text, err)
		} else if got := s.of(tt.rate); got != tt.want {
			t.Errorf("%s of %d is %d, want %d", tt.text, tt.rate, got, tt.want)
		}
	}
}
