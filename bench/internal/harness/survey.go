package harness

import (
	"fmt"
	"runtime"
)

// Survey asks for figures that are no time per call: memory, pauses, counts.
// The subjects are asked one after the other, and what one leaves behind is
// collected before the next.
type Survey struct {
	// Name tells the survey apart, for example "1,000,000 new keys".
	Name string

	// Note says what a reader must know to judge the figures. It may be empty.
	Note string

	// Figures are what each subject is asked for. Less is better.
	Figures []Figure

	// Subjects answer.
	Subjects []Subject
}

// Figure is one thing to know.
type Figure struct {
	// Name is what was measured, for example "memory".
	Name string

	// Unit is for example "B/key". It is empty for a plain number.
	Unit string

	// AtMost is the most that is good for weir, for example 24. 0 means that
	// the figure only informs.
	AtMost float64
}

// Subject is one that answers a survey.
type Subject struct {
	Name   string // as in Contender, like the next two
	Kind   Kind
	Module string

	// Ask returns a value for each figure, in the same order. It calls
	// progress with how far it is.
	Ask func(progress func(step string)) ([]float64, error)
}

// Answers is a survey and the values of each subject, in the same order.
type Answers struct {
	Survey Survey
	Values [][]float64
}

// Ask asks every subject. It calls progress, unless nil, with what it is doing.
func Ask(s Survey, progress func(step string)) (Answers, error) {
	if progress == nil {
		progress = func(string) {}
	}
	a := Answers{Survey: s}
	for _, sub := range s.Subjects {
		progress(sub.Name)
		runtime.GC()
		values, err := sub.Ask(func(step string) { progress(sub.Name + ", " + step) })
		if err != nil {
			return Answers{}, fmt.Errorf("%s: %s: %w", s.Name, sub.Name, err)
		}
		if len(values) != len(s.Figures) {
			return Answers{}, fmt.Errorf("%s: %s: %d values for %d figures", s.Name, sub.Name, len(values), len(s.Figures))
		}
		a.Values = append(a.Values, values)
	}
	return a, nil
}
