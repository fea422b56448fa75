package harness_test

import (
	"errors"
	"fmt"
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
		t.Errorf("progress reported %q, want %q", steps, want)
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

func TestAskTogether(t *testing.T) {
	survey := func(values [][]float64, err error) harness.Survey {
		return harness.Survey{
			Name:     "speed",
			Figures:  []harness.Figure{{Name: "calls"}},
			Subjects: []harness.Subject{{Name: "a"}, {Name: "b"}},
			Together: func(func(string)) ([][]float64, int, error) { return values, 3, err },
		}
	}
	values := [][]float64{{1}, {2}}
	a, err := harness.Ask(survey(values, nil), nil)
	if err != nil || !reflect.DeepEqual(a.Values, values) || a.Disturbed != 3 {
		t.Errorf("values %v, disturbed %d, error %v; want %v, 3", a.Values, a.Disturbed, err, values)
	}
	for _, tt := range []struct {
		values [][]float64
		err    error
		want   string
	}{
		{values, errors.New("no server"), "speed: no server"},
		{values[:1], nil, "speed: 1 answers for 2 subjects"},
		{[][]float64{{1}, {2, 3}}, nil, "speed: b: 2 values for 1 figures"},
	} {
		if _, err := harness.Ask(survey(tt.values, tt.err), nil); err == nil || err.Error() != tt.want {
			t.Errorf("error %v, want %q", err, tt.want)
		}
	}
}

// TestMissingIsLeftOut makes sure that a machine without something is no failure.
func TestMissingIsLeftOut(t *testing.T) {
	missing := harness.Missing{What: "abacus"}
	for name, s := range map[string]harness.Survey{
		"one by one": {Subjects: []harness.Subject{subject("a", fmt.Errorf("start: %w", missing))}},
		"together":   {Subjects: []harness.Subject{{}}, Together: func(func(string)) ([][]float64, int, error) { return nil, 0, missing }},
	} {
		s.Name, s.Figures = "beads", []harness.Figure{{Name: "calls"}}
		a, err := harness.Ask(s, nil)
		if err != nil || a.Missing != "there is no abacus on this machine" || a.Survey.Name != "beads" || len(a.Survey.Subjects)+len(a.Survey.Figures) > 0 {
			t.Errorf("%s: %+v, error %v", name, a, err)
		}
	}
}

func TestFigureBounds(t *testing.T) {
	for _, tt := range []struct {
		name    string
		f       harness.Figure
		bounded bool
		good    []float64
		bad     []float64
		ranking []float64 // the best first
	}{
		{"informs", harness.Figure{}, false, []float64{0, 1e9}, nil, []float64{0, 1, 2}},
		{"at most", harness.Figure{AtMost: 24}, true, []float64{0, 24}, []float64{24.001}, []float64{0, 24, 25}},
		{"at least", harness.Figure{AtLeast: 24}, true, []float64{24, 1e9}, []float64{0, 23.999}, []float64{25, 24, 0}},
		{"more", harness.Figure{More: true}, false, []float64{0, 1e9}, nil, []float64{2, 1, 0}},
		{"more than", harness.Figure{More: true, AtLeast: 24}, true, []float64{24, 1e9}, []float64{0, 23.999}, []float64{25, 24, 0}},
		{
			"between",
			harness.Figure{AtLeast: 0.999, AtMost: 1.0005},
			true,
			[]float64{0.999, 1, 1.0005},
			[]float64{0.9989, 1.0006, 3.2, 0},
			[]float64{0.9998, 0.9995, 1.01, 0.19, 3.2},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.f.Bounded(); got != tt.bounded {
				t.Errorf("bounded is %t", got)
			}
			for _, v := range tt.good {
				if !tt.f.Good(v) {
					t.Errorf("%v is not good", v)
				}
			}
			for _, v := range tt.bad {
				if tt.f.Good(v) {
					t.Errorf("%v is good", v)
				}
			}
			for i, v := range tt.ranking[1:] {
				if before := tt.ranking[i]; !tt.f.Better(before, v) || tt.f.Better(v, before) {
					t.Errorf("%v is not better than %v, or the other way round", before, v)
				}
			}
		})
	}
}

// TestQuietest disturbs each answer so much, and the answers are 1, 2 and so on.
func TestQuietest(t *testing.T) {
	for _, tt := range []struct {
		name      string
		quiet     bool
		much      []float64
		want      float64
		asked     int
		disturbed bool
	}{
		{"no matter", false, []float64{5}, 1, 1, false},
		{"quiet", true, []float64{0}, 1, 1, false},
		{"quiet at last", true, []float64{5, 0}, 2, 2, false},
		{"first is quieter", true, []float64{1, 2, 2, 2}, 1, 4, true},
		{"third is quieter", true, []float64{3, 2, 1, 2}, 3, 4, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked := 0
			ask := func() ([]float64, error) {
				asked++
				return []float64{float64(asked)}, nil
			}
			watch := func() func() float64 {
				return func() float64 { return tt.much[asked-1] }
			}
			got, disturbed, err := harness.Survey{Quiet: tt.quiet}.Quietest(ask, watch)
			if err != nil || len(got) != 1 || got[0] != tt.want || asked != tt.asked || disturbed != tt.disturbed {
				t.Errorf("answer %v of %d, disturbed %t, error %v; want %v of %d, %t", got, asked, disturbed, err, tt.want, tt.asked, tt.disturbed)
			}
		})
	}
}

func TestJudged(t *testing.T) {
	bounded := harness.Figure{Name: "times floor", AtLeast: 0.85}
	for _, tt := range []struct {
		subject harness.Subject
		figure  harness.Figure
		want    bool
	}{
		{harness.Subject{}, bounded, true},
		{harness.Subject{}, harness.Figure{Name: "p50"}, false},
		{harness.Subject{Kind: harness.Peer}, bounded, false},
		{harness.Subject{NoGoal: true}, bounded, false},
		{harness.Subject{Only: []string{"CPU", "times floor"}}, bounded, true},
		{harness.Subject{Only: []string{"CPU"}}, bounded, false},
	} {
		if got := tt.subject.Judged(tt.figure); got != tt.want {
			t.Errorf("%+v, %s: judged %t", tt.subject, tt.figure.Name, got)
		}
	}
}
