package target

import "math/rand/v2"

// vars is what variables are replaced with in one operation of one caller. It is
// not safe for concurrent use.
type vars struct {
	worker int64 // set by newVars, like seed and random
	seed   uint64
	random *rand.Rand // draws from pcg

	seq     int64
	pcg     rand.PCG
	zipfs   map[int64]*rand.Zipf // by N
	scratch []byte
}

func newVars(seed uint64, worker int) *vars {
	v := &vars{worker: int64(worker), seed: seed, zipfs: map[int64]*rand.Zipf{}}
	v.random = rand.New(&v.pcg)
	v.begin(0)
	return v
}

// begin turns to an operation. What is random in it depends on the seed and the
// operation's number only: which caller gets which operation is up to the
// scheduler, and differs between runs.
func (v *vars) begin(seq int64) {
	v.seq = seq
	v.pcg.Seed(mix(v.seed), mix(uint64(seq)))
}

// mix is the finalizer of splitmix64. It makes seeds that follow each other differ
// in half of their bits.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// zipfSkew is s in P(k) ~ 1/(1+k)^s. At 1.1, a tenth of a thousand keys get three
// quarters of the calls.
const zipfSkew = 1.1

func (v *vars) zipf(n int64) uint64 {
	z := v.zipfs[n]
	if z == nil {
		z = rand.NewZipf(v.random, zipfSkew, 1, uint64(n-1))
		v.zipfs[n] = z
	}
	return min(z.Uint64(), uint64(n-1)) // it calculates in float64, and may round up
}
