package envoyapi

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir/ruleset"
)

// BenchmarkShouldRateLimit is one request without a network, beside which the size of the
// rules must not matter.
func BenchmarkShouldRateLimit(b *testing.B) {
	for _, rules := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("rules=%d", rules), func(b *testing.B) {
			d := Domain{Name: "d", Descriptors: []Descriptor{{Key: "path"}, {Key: "user", Limit: perMinute(1 << 31)}}}
			for i := range rules {
				d.Descriptors[0].Descriptors = append(d.Descriptors[0].Descriptors, Descriptor{Key: "user", Value: fmt.Sprint("user-", i), Limit: perMinute(1 << 31)})
			}
			w := newWorld(b, d)
			w.service.core.Observe = func(*ruleset.Record) {}
			r := request(newDescriptor("path=/", "user=user-7"), newDescriptor("user=user-7"))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.ask(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
