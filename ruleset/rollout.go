package ruleset

// includes reports whether the rule's rollout includes key.
func (r *Rule) includes(key string) bool {
	return r.policy.Rollout.includes(r.policy.RolloutGroup, key)
}

// includes reports whether key is in the share of keys for which policy, a policy's RolloutGroup,
// is enforced.
//
// Both names are hashed with FNV-1a, the hash is mixed and then scaled to [0, 10,000): a key has
// a fixed rank in each policy, and a greater share includes all keys of a smaller one. The hash
// must stay the same on every node and in every version, so that a key is not limited on one
// node and unlimited on another.
func (s Share) includes(policy, key string) bool {
	if s >= All {
		return true
	}
	h := mix(fnv(fnv(fnvOffset, policy)*fnvPrime, key)) // the product is a zero byte between the two
	return h>>32*uint64(All)>>32 < uint64(s)
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func fnv(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return h
}

// mix is the finalizer of MurmurHash3: every bit of h affects every bit of the result.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
