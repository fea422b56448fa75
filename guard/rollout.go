package guard

// includes says whether key is among the share of keys for which policy is enforced.
//
// Both names are hashed with FNV-1a, whose low bits are then mixed, and the hash is
// scaled to [0, 10,000): a key has one place in each policy's order of keys, and a
// greater share includes whoever a smaller one did. It is the same on every node and
// in every version: nobody is limited on one node and not on the next.
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

// mix lets every bit of h have an effect on every other: the finaliser of MurmurHash3.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
