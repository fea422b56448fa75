package history

import "math"

// maxTree is a row of numbers to whose end pieces can be added to and asked for their
// greatest, each in O(log n).
//
// Node i has the children 2i and 2i+1; the numbers are the leaves. greatest[i] is the
// greatest number below node i, with all that was added to i and below, but not what
// was added to the nodes above.
type maxTree struct {
	size     int // of the leaves, a power of two
	greatest []float64
	added    []float64 // to all leaves below the node
}

func newMaxTree(n int, at func(i int) float64) *maxTree {
	size := 1
	for size < n {
		size *= 2
	}
	t := &maxTree{size: size, greatest: make([]float64, 2*size), added: make([]float64, 2*size)}
	for i := range size {
		t.greatest[size+i] = math.Inf(-1)
		if i < n {
			t.greatest[size+i] = at(i)
		}
	}
	for i := size - 1; i > 0; i-- {
		t.greatest[i] = max(t.greatest[2*i], t.greatest[2*i+1])
	}
	return t
}

// addFrom adds x to all numbers from the first-th on.
func (t *maxTree) addFrom(first int, x float64) {
	i := t.size + first
	t.greatest[i] += x
	for ; i > 1; i /= 2 {
		if i%2 == 0 { // the right sibling lies wholly behind first
			t.greatest[i+1] += x
			t.added[i+1] += x
		}
		t.greatest[i/2] = max(t.greatest[i], t.greatest[i^1]) + t.added[i/2]
	}
}

// maxFrom returns the greatest of all numbers from the first-th on.
func (t *maxTree) maxFrom(first int) float64 {
	i := t.size + first
	best := t.greatest[i]
	for ; i > 1; i /= 2 {
		if i%2 == 0 {
			best = max(best, t.greatest[i+1])
		}
		best += t.added[i/2]
	}
	return best
}
