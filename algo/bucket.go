package algo

// Bucket is GCRA described as a token bucket: the same rule and the same word.
//
// A bucket holds up to burst tokens and gains rate/per of them while it is not
// full. A charge of c takes c tokens or, if there are fewer, is refused. With
//
//	level(now) = burst − max(0, TAT − tick(now)) / U
//
// "level ≥ c" is the same inequality as GCRA's "max(TAT, t) + c×U ≤ t + B×U", and
// "level −= c" the same step as "TAT = max(TAT, t) + c×U". So the two decide
// alike always; TestBucketEqualsGCRA drives them side by side.
//
// Example: 10 per second with burst 5, five units at t = 0: TAT is 0.5 s and the
// level 0. At 0.25 s the level is 2.5; 2 units fit, 3 do not.
//
// Source: ITU-T I.371, which states the equivalence; many texts take the two for
// different algorithms.
type Bucket struct{ *GCRA }

// Level returns the tokens in the bucket at now, as whole tokens and a rest in
// parts of Unit.
func (b Bucket) Level(tat uint64, now int64) (tokens int64, part uint64) {
	t := b.Tick(now)
	if tat <= t {
		return b.units, 0
	}
	owed := tat - t
	if owed >= b.burst {
		return 0, 0
	}
	tokens = int64(b.perUnit.quo(b.burst - owed))
	return tokens, b.burst - owed - uint64(tokens)*b.unit
}

// Unit returns how many parts a token has.
func (b Bucket) Unit() uint64 { return b.unit }
