package envoyapi

import (
	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// match returns the node of a descriptor's entries, nil if there is none. Its time is
// proportional to the number of entries, not of rules.
func (d *domain) match(entries []*rlcommon.RateLimitDescriptor_Entry) *node {
	n := d.root
	for _, e := range entries {
		if n = n.next(e.GetKey(), e.GetValue()); n == nil {
			return nil
		}
	}
	return n
}

// next returns the child for an entry: that of the value, else that of its longest prefix, else
// that of any value.
func (n *node) next(key, value string) *node {
	if value != "" {
		if next := n.exact[entry{key, value}]; next != nil {
			return next
		}
	}
	for _, length := range n.lengths[key] {
		if length > len(value) {
			continue
		}
		if next := n.prefixes[entry{key, value[:length]}]; next != nil {
			return next
		}
	}
	return n.exact[entry{key, ""}]
}
