package envoyapi

import (
	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// match returns where the entries of a descriptor lead, nil if nowhere. It takes as many
// steps as there are entries, whatever number of rules there is.
func (d *domain) match(entries []*rlcommon.RateLimitDescriptor_Entry) *node {
	n := d.root
	for _, e := range entries {
		if n = n.next(e.GetKey(), e.GetValue()); n == nil {
			return nil
		}
	}
	return n
}

// next returns what follows an entry: the value's own rule, else that of its longest
// prefix, else that of any value.
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
