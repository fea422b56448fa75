package harness_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
)

func TestTurns(t *testing.T) {
	var order []int
	runs, disturbed, err := harness.Turns[int]{
		Names: []string{"a", "b", "c"}, Rounds: 2,
		Run: func(i int) (int, time.Duration, error) {
			order = append(order, i)
			return len(order), 0, nil
		},
	}.Take(func(string) {})
	if err != nil || disturbed != 0 {
		t.Fatalf("%d disturbed, error %v", disturbed, err)
	}
	if want := []int{0, 1, 2, 1, 2, 0}; !slices.Equal(order, want) {
		t.Errorf("the order is %v, want %v", order, want)
	}
	for i, want := range [][]int{{1, 6}, {2, 4}, {3, 5}} {
		if !slices.Equal(runs[i], want) {
			t.Errorf("runs of %d are %v, want %v", i, runs[i], want)
		}
	}
}

// A turn is made again while it is disturbed, and the quietest counts, whatever came of it.
func TestDisturbedTurns(t *testing.T) {
	noise := []time.Duration{3, 2, 4, 0, 5, 5}
	made := 0
	runs, disturbed, err := harness.Turns[int]{
		Names: []string{"a", "b"}, Rounds: 2,
		Run: func(int) (int, time.Duration, error) {
			made++
			return made, noise[min(made, len(noise))-1], nil
		},
	}.Take(func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if first := runs[0][0]; first != 4 {
		t.Errorf("of the first turn, try %d counts, want 4, the quiet one", first)
	}
	if made != 8 || disturbed != 3 { // 4 turns and as many repetitions
		t.Errorf("%d tries were made and %d counted although disturbed, want 8 and 3", made, disturbed)
	}
}

func TestTurnsFail(t *testing.T) {
	broken := errors.New("broken")
	_, _, err := harness.Turns[int]{
		Names: []string{"a"}, Rounds: 1, Run: func(int) (int, time.Duration, error) { return 0, 0, broken },
	}.Take(func(string) {})
	if !errors.Is(err, broken) || err.Error() != "a: broken" {
		t.Errorf("error %v", err)
	}
}
