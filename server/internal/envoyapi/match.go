package envoyapi

import (
	"strings"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// match returns the node of a descriptor's entries, nil if there is none. Its time is
// proportional to the number of entries, and of the key's patterns with a * that is not at the
// end, not of other rules.
func (d *domain) match(entries []*rlcommon.RateLimitDescriptor_Entry) *node {
	n := d.root
	for _, e := range entries {
		if n = n.next(e.GetKey(), e.GetValue()); n == nil {
			return nil
		}
	}
	return n
}

// next returns the child for an entry: that of the value, else that of the pattern with the lowest
// rank, else that of any value.
func (n *node) next(key, value string) *node {
	if value != "" {
		if next := n.exact[entry{key, value}]; next != nil {
			return next
		}
	}
	best := n.exact[entry{key, ""}]
	for _, length := range n.lengths[key] {
		if length <= len(value) {
			best = best.or(n.prefixes[entry{key, value[:length]}])
		}
	}
	for _, p := range n.patterns[key] {
		if p.matches(value) {
			best = best.or(p.node)
		}
	}
	return best
}

// or returns the node with the lower rank. Either may be nil.
func (n *node) or(other *node) *node {
	if n == nil || other != nil && other.rank < n.rank {
		return other
	}
	return n
}

// matches reports whether the parts are in value in their order, the first at its beginning and
// the last at its end.
func (p *pattern) matches(value string) bool {
	last := len(p.parts) - 1
	rest, ok := strings.CutPrefix(value, p.parts[0])
	if !ok {
		return false
	}
	for _, part := range p.parts[1:last] {
		if _, rest, ok = strings.Cut(rest, part); !ok {
			return false
		}
	}
	return strings.HasSuffix(rest, p.parts[last])
}
