package harness_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/bench/internal/harness"
)

func subject(name string, err error, values ...float64) harness.Subject {
	return harness.Subject{Name: name, Ask: func(progress func(string)) ([]float64, error) {
		progress("half way")
		return values, err
	}}
}

func TestAsk(t *testing.T) {
	s := harness.Survey{
		Name:     "memory",
		Figures:  []harness.Figure{{Name: "heap", Unit: "B"}, {Name: "pause", Unit: "ms"}},
		Subjects: []harness.Subject{subject("a", nil, 1, 2), subject("b", nil, 3, 4)},
	}
	var steps []string
	a, err := harness.Ask(s, func(step string) { steps = append(steps, step) })
	if err != nil {
		t.Fatal(err)
	}
	if want := [][]float64{{1, 2}, {3, 4}}; !reflect.DeepEqual(a.Values, want) {
		t.Errorf("values %v, want %v", a.Values, want)
	}
	if want := []string{"a", "a, half way", "b", "b, half way"}; !slices.Equal(steps, want) {
		t.Errorf("progress told of %q, want %q", steps, want)
	}
}

func TestAskFailsLoudly(t *testing.T) {
	for _, tt := range []struct {
		s    harness.Subject
		want string
	}{
		{subject("a", errors.New("no memory"), 1), "memory: a: no memory"},
		{subject("a", nil, 1, 2), "memory: a: 2 values for 1 figures"},
	} {
		s := harness.Survey{Name: "memory", Figures: []harness.Figure{{Name: "heap"}}, Subjects: []harness.Subject{tt.s}}
		if _, err := harness.Ask(s, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v, want %q", err, tt.want)
		}
	}
}
