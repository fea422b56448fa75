package envoyapi

import (
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
)

// FuzzDescriptors compiles rules and sends a request, of whatever text and bytes: nothing
// panics, and each answer has a status for each descriptor.
func FuzzDescriptors(f *testing.F) {
	for _, rules := range []string{"", "a=x\na=x*\n b=\n", "a\na=*\n\tb=y*\nc=\xff", "k=" + strings.Repeat("long", 100)} {
		for _, r := range []*rlsv3.RateLimitRequest{
			request(newDescriptor("a=x", "b=y")),
			request(newDescriptor("a=xyz"), hits(0, newDescriptor("c=\u00ff"))),
		} {
			wire, err := proto.Marshal(r)
			must(f, err)
			f.Add(rules, wire, true)
			f.Add(rules, wire, false)
		}
	}
	f.Fuzz(func(t *testing.T, rules string, wire []byte, compat bool) {
		domain := Domain{Name: "d", Descriptors: textTree(rules), Compat: compat, NegativeHits: true, Headers: true}
		if _, err := Compile([]Domain{domain}, nil); err != nil {
			return
		}
		r := &rlsv3.RateLimitRequest{}
		if proto.Unmarshal(wire, r) != nil {
			return
		}
		got, err := newWorld(t, domain).ask(r)
		if err == nil && (len(got.Statuses) != len(r.Descriptors) || got.OverallCode == rlsv3.RateLimitResponse_UNKNOWN) {
			t.Errorf("%v for %v", got, r)
		}
	})
}

// textTree makes rules of lines "key=value"; those that begin with a space are below the
// one before.
func textTree(text string) (list []Descriptor) {
	for i, line := range strings.Split(text, "\n") {
		below := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		d := Descriptor{Key: key, Value: value, Limit: perMinute(uint32(i)), ShadowMode: i%5 == 4, QuotaMode: i%5 == 3}
		if n := len(list); below && n > 0 {
			list[n-1].Descriptors = append(list[n-1].Descriptors, d)
			continue
		}
		list = append(list, d)
	}
	return list
}
