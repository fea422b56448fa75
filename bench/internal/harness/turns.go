package harness

import (
	"fmt"
	"time"
)

// Others slow down those most that need most, so a turn counts only if no other program had the
// cores.
const (
	turnTries = 5 // how often a disturbed turn is made before the quietest counts
	turnSpare = 1 // repetitions that a turn may have on average
)

// Turns is how those who answer together take turns.
type Turns[R any] struct {
	// Names of those who take turns.
	Names []string

	// Rounds is how many turns each of them has.
	Rounds int

	// Run makes one turn of the i-th and says how much others disturbed it.
	Run func(i int) (r R, disturbed time.Duration, err error)
}

// Take returns what came of the turns of each, and how many counted although they were
// disturbed. Each round begins with another one, so that none always comes after the same.
func (t Turns[R]) Take(progress func(step string)) (runs [][]R, disturbed int, err error) {
	n := len(t.Names)
	runs = make([][]R, n)
	spare := turnSpare * t.Rounds * n
	for round := range t.Rounds {
		progress(fmt.Sprintf("round %d of %d", round+1, t.Rounds))
		for k := range n {
			i := (round + k) % n
			r, quiet, err := t.quietest(i, &spare)
			if err != nil {
				return nil, 0, fmt.Errorf("%s: %w", t.Names[i], err)
			}
			if !quiet {
				disturbed++
			}
			runs[i] = append(runs[i], r)
		}
	}
	return runs, disturbed, nil
}

// quietest makes a turn until it was not disturbed, but not for ever. It returns the one
// that was disturbed least: which one counts does not depend on what it says.
func (t Turns[R]) quietest(i int, spare *int) (quietest R, quiet bool, err error) {
	var least time.Duration
	for try := 1; ; try++ {
		r, disturbed, err := t.Run(i)
		if err != nil {
			return r, false, err
		}
		if try == 1 || disturbed < least {
			quietest, least = r, disturbed
		}
		if least == 0 || try >= turnTries || *spare == 0 {
			return quietest, least == 0, nil
		}
		*spare--
	}
}
