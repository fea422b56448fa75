package envoyapi

import (
	"strings"
	"testing"
)

// TestPatterns: a * matches any text wherever it is, and each value has a counter of its own.
func TestPatterns(t *testing.T) {
	w := newWorld(t, Domain{Name: "d", Descriptors: []Descriptor{
		{Key: "k", Value: "bar*b", Limit: perMinute(1)},
		{Key: "k", Value: "/api/*/resource/*/action", Limit: perMinute(2)},
		{Key: "k", Value: "*.pdf", Limit: perMinute(3)},
		{Key: "k", Value: "bar*", Limit: perMinute(4)},
		{Key: "k", Value: "bar*xb", Limit: perMinute(5)},
		{Key: "k", Value: "a*a", Limit: perMinute(6)},
		{Key: "k", Value: "barb", Limit: perMinute(7)},
		{Key: "k", Value: "**", Limit: perMinute(9)},
	}})
	for value, limit := range map[string]uint32{
		"bar1b": 1, "barbb": 1, "barb": 7, "bar": 4, "bar1c": 4, "bar1xb": 5, "barxb": 5,
		"/api/v1/resource/7/action": 2, "/api//resource//action": 2, "/api/v1/resource/action": 9,
		"a.pdf": 3, ".pdf": 3, "a.pdfx": 9, "a": 9, "aa": 6, "aba": 6, "": 9,
	} {
		w.want(t, request(newDescriptor("k="+value)), "OK: OK", limit-1)
	}
}

// TestPatternsInOrder: as in envoyproxy/ratelimit, the first pattern that matches applies with
// Compat.
func TestPatternsInOrder(t *testing.T) {
	d := Domain{Name: "d", Descriptors: []Descriptor{
		{Key: "k", Value: "a*c", Limit: perMinute(1)},
		{Key: "k", Value: "a*", Limit: perMinute(2)},
		{Key: "k", Value: "ab*", Limit: perMinute(3)},
		{Key: "k", Value: "ab*cc", Limit: perMinute(4)},
	}}
	for _, compat := range []bool{false, true} {
		d.Compat = compat
		w := newWorld(t, d)
		for value, limits := range map[string][2]uint32{"abc": {1, 1}, "ab": {3, 2}, "abcc": {4, 1}, "ad": {2, 2}, "adc": {1, 1}} {
			limit := limits[0]
			if compat {
				limit = limits[1]
			}
			w.want(t, request(newDescriptor("k="+value)), "OK: OK", limit-1)
		}
	}
}

// TestShareThreshold: values that the pattern matches share one counter, also below it, and others
// do not.
func TestShareThreshold(t *testing.T) {
	d := Domain{Name: "d", Descriptors: []Descriptor{
		{Key: "file", Value: "files/*", ShareThreshold: true, Limit: perMinute(3), Descriptors: []Descriptor{{Key: "user", Limit: perMinute(2)}}},
		{Key: "file", Value: "docs/*/x", ShareThreshold: true, Limit: perMinute(3)},
		{Key: "file", Value: "own/*", Limit: perMinute(3)},
		{Key: "top", Descriptors: []Descriptor{{Key: "file", Value: "*", ShareThreshold: true, Limit: perMinute(5)}}},
	}}
	for _, compat := range []bool{false, true} {
		d.Compat = compat
		w := newWorld(t, d)
		for _, step := range []struct {
			entries   string
			remaining uint32
		}{
			{"file=files/a", 2},
			{"file=files/b", 1},
			{"file=files/", 0},
			{"file=docs/a/x", 2},
			{"file=docs/b/x", 1},
			{"file=own/a", 2},
			{"file=own/b", 2},
			{"file=files/a user=1", 1},
			{"file=files/b user=1", 0},
			{"file=files/b user=2", 1},
			{"top=1 file=a", 4},
			{"top=1 file=b", 3},
			{"top=2 file=a", 4},
		} {
			w.want(t, request(newDescriptor(strings.Fields(step.entries)...)), "OK: OK", step.remaining)
		}
		w.want(t, request(newDescriptor("file=files/c")), "OVER_LIMIT: OVER_LIMIT", 0)
	}
	_, err := Compile([]Domain{{Name: "d", Descriptors: []Descriptor{{Key: "k", Value: "v", ShareThreshold: true, Limit: perMinute(1)}}}}, nil)
	if err == nil || !strings.HasPrefix(err.Error(), "envoy: [0].Descriptors[0].ShareThreshold: is for values with a *") {
		t.Error(err)
	}
}
