package harness

import "time"

// SinceName is what Since is called.
const SinceName = "time.Since"

var base = time.Now()

// Since returns the floor of nearly every case: the cheapest clock that Go offers
// everywhere.
func Since() Contender {
	return Contender{Name: SinceName, Kind: Floor, New: func() (Run, error) {
		return func(n int) (positive int) {
			for range n {
				if time.Since(base) > 0 {
					positive++
				}
			}
			return positive
		}, nil
	}}
}
