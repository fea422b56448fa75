package harness

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
)

// Survey measures figures that are no time per call: memory, pauses, counts.
// The subjects are measured one after the other, and what one leaves behind is
// collected before the next.
type Survey struct {
	// Name tells the survey apart, for example "1,000,000 new keys".
	Name string

	// Note says what a reader must know to judge the figures. It may be empty.
	Note string

	// Quiet says that an answer tells of the machine as well. A subject that did
	// not have it to itself is measured again, and the quietest answer counts.
	Quiet bool

	// Figures are what is measured of each subject. Less is better, unless the
	// figure says otherwise or has a least good value.
	Figures []Figure

	// Subjects answer.
	Subjects []Subject

	// Together, if set, answers for all subjects, in the same order, and their Ask
	// is not called: it lets them take turns. It calls progress with how far it is,
	// and sees to quiet itself: disturbed is how many turns were not.
	Together func(progress func(step string)) (values [][]float64, disturbed int, err error)
}

// Missing is returned by those who answer if the machine lacks what they need. The
// survey is then left out.
type Missing struct {
	What string // for example "redis-server"
}

func (m Missing) Error() string { return "there is no " + m.What + " on this machine" }

// Figure is one thing to know.
type Figure struct {
	// Name is what was measured, for example "memory".
	Name string

	// Unit is for example "B/key". It is empty for a plain number.
	Unit string

	// AtLeast and AtMost are the least and the most that is good for weir, for
	// example 0.999 and 1.0005. 0 means that there is no such bound, and without
	// either the figure only informs.
	AtLeast, AtMost float64

	// More says that more is better even without a least good value.
	More bool
}

// Bounded says whether there is a value that is not good.
func (f Figure) Bounded() bool { return f.AtLeast > 0 || f.AtMost > 0 }

// Good says whether v is within the bounds.
func (f Figure) Good(v float64) bool {
	return v >= f.AtLeast && (f.AtMost == 0 || v <= f.AtMost)
}

// Better says whether a is better than b: closer to the middle of both bounds if there
// are two, more if that is said or if there is only a least good value, otherwise less.
func (f Figure) Better(a, b float64) bool {
	switch {
	case f.AtMost == 0 && (f.More || f.AtLeast > 0):
		return a > b
	case f.AtLeast == 0:
		return a < b
	}
	middle := (f.AtLeast + f.AtMost) / 2
	return math.Abs(a-middle) < math.Abs(b-middle)
}

// Subject is one that answers a survey.
type Subject struct {
	Name   string // as in Contender, like the next two
	Kind   Kind
	Module string

	// NoGoal says that the figures' bounds are not for this one, although it is
	// weir's.
	NoGoal bool

	// Only names the figures whose bounds are for this one. None means all.
	Only []string

	// Ask returns a value for each figure, in the same order. It calls
	// progress with how far it is.
	Ask func(progress func(step string)) ([]float64, error)
}

// Judged says whether a figure's bounds are for the subject.
func (s Subject) Judged(f Figure) bool {
	if s.Kind != Weir || s.NoGoal || !f.Bounded() {
		return false
	}
	return len(s.Only) == 0 || slices.Contains(s.Only, f.Name)
}

// Answers is a survey and the values of each subject, in the same order.
type Answers struct {
	Survey Survey
	Values [][]float64

	// Missing says why the survey was left out, for example "there is no
	// redis-server on this machine". It then has neither figures nor subjects.
	Missing string

	// Disturbed is how many answers, or turns of those who answer together, counted
	// although the survey is to be quiet and others had more of the cores than that.
	Disturbed int
}

// Ask measures every subject. It calls progress, unless nil, with what it is doing.
func Ask(s Survey, progress func(step string)) (Answers, error) {
	if progress == nil {
		progress = func(string) {}
	}
	a, err := askAll(s, progress)
	if missing := (Missing{}); errors.As(err, &missing) {
		s.Figures, s.Subjects = nil, nil
		return Answers{Survey: s, Missing: missing.Error()}, nil
	}
	return a, err
}

func askAll(s Survey, progress func(step string)) (Answers, error) {
	if s.Together != nil {
		return askTogether(s, progress)
	}
	a := Answers{Survey: s}
	for _, sub := range s.Subjects {
		progress(sub.Name)
		runtime.GC()
		ask := func() ([]float64, error) {
			return sub.Ask(func(step string) { progress(sub.Name + ", " + step) })
		}
		values, disturbed, err := s.quietest(ask, disturbance)
		if err != nil {
			return Answers{}, fmt.Errorf("%s: %s: %w", s.Name, sub.Name, err)
		}
		if err := s.check(sub, values); err != nil {
			return Answers{}, err
		}
		a.Values = append(a.Values, values)
		if disturbed {
			a.Disturbed++
		}
	}
	return a, nil
}

func askTogether(s Survey, progress func(step string)) (Answers, error) {
	values, disturbed, err := s.Together(progress)
	if err != nil {
		return Answers{}, fmt.Errorf("%s: %w", s.Name, err)
	}
	if len(values) != len(s.Subjects) {
		return Answers{}, fmt.Errorf("%s: %d answers for %d subjects", s.Name, len(values), len(s.Subjects))
	}
	for i, sub := range s.Subjects {
		if err := s.check(sub, values[i]); err != nil {
			return Answers{}, err
		}
	}
	return Answers{Survey: s, Values: values, Disturbed: disturbed}, nil
}

// check makes sure that a subject has answered everything.
func (s Survey) check(sub Subject, values []float64) error {
	if len(values) != len(s.Figures) {
		return fmt.Errorf("%s: %s: %d values for %d figures", s.Name, sub.Name, len(values), len(s.Figures))
	}
	return nil
}

// quietest measures until an answer was not disturbed, if the survey is to be quiet, but
// not for ever. It returns the answer that was disturbed least: which one counts does
// not depend on what it says.
func (s Survey) quietest(ask func() ([]float64, error), watch func() (end func() (disturbed float64))) (quietest []float64, disturbed bool, err error) {
	least := math.Inf(1)
	for range askTries {
		end := watch()
		values, err := ask()
		much := end()
		if err != nil {
			return nil, false, err
		}
		if !s.Quiet || much <= 0 {
			return values, false, nil
		}
		if much < least {
			quietest, least = values, much
		}
	}
	return quietest, true, nil
}
