package svg

import (
	"math"
	"time"
)

// Axis finds the place of a value between two places, in pixels. An axis that points up
// begins at the greater y.
type Axis struct {
	Lo, Hi   float64   // the values at its ends, Lo < Hi
	From, To float64   // their places
	Ticks    []float64 // round values within, ascending
	log      bool
}

// Linear returns an axis from lo to hi, both widened to the next tick. It has at most
// most ticks, or three if that is more, at multiples of 1, 2 or 5 times a power of ten.
func Linear(lo, hi, from, to float64, most int) Axis {
	lo, hi = ordered(lo, hi)
	steps := float64(max(2, most-1))
	step := niceStep((hi - lo) / steps)
	for math.Ceil(hi/step)-math.Floor(lo/step) > steps { // widening would make too many
		step = niceStep(step * 1.01)
	}
	lo, hi = math.Floor(lo/step)*step, math.Ceil(hi/step)*step
	return Axis{Lo: lo, Hi: hi, From: from, To: to, Ticks: multiples(lo, hi, step)}
}

// Log returns a logarithmic axis from lo to hi, both widened to 1, 2 or 5 times a
// power of ten. Its ticks are the powers of ten, and 2 and 5 times them if there are few.
// Values that are not positive stand at its low end.
func Log(lo, hi, from, to float64) Axis {
	if !(lo > 0) || math.IsInf(lo, 0) {
		lo = 1
	}
	if !(hi > lo) || math.IsInf(hi, 0) {
		hi = lo * 10
	}
	a := Axis{Lo: niceFloor(lo), Hi: niceStep(hi), From: from, To: to, log: true}
	if decades := math.Log10(a.Hi / a.Lo); decades <= 2.5 {
		a.Ticks = powers(a.Lo, a.Hi, 1, 2, 5)
	} else {
		a.Ticks = powers(a.Lo, a.Hi, 1)
	}
	return a
}

// Time returns an axis from 0 to total, with at most most ticks at round seconds,
// minutes or hours, and the labels of its ticks. Its values are seconds.
func Time(total time.Duration, from, to float64, most int) (axis Axis, labels []string) {
	total = max(total, time.Millisecond)
	step := timeStep(total, max(most, 2))
	axis = Axis{Hi: total.Seconds(), From: from, To: to, Ticks: multiples(0, total.Seconds(), step.Seconds())}
	for i := range axis.Ticks {
		labels = append(labels, timeLabel(time.Duration(i)*step, step))
	}
	return axis, labels
}

// At returns the place of v. Values outside stand at the nearer end, and one that is no
// number at the low end, so that nothing is drawn outside.
func (a Axis) At(v float64) float64 {
	v = min(max(v, a.Lo), a.Hi)
	if math.IsNaN(v) {
		v = a.Lo
	}
	share := (v - a.Lo) / (a.Hi - a.Lo)
	if a.log {
		share = math.Log(v/a.Lo) / math.Log(a.Hi/a.Lo)
	}
	return a.From + share*(a.To-a.From)
}

// ordered makes a range of any two numbers.
func ordered(lo, hi float64) (l, h float64) {
	if math.IsNaN(lo) || math.IsInf(lo, 0) {
		lo = 0
	}
	if !(hi > lo) || math.IsInf(hi, 0) {
		hi = lo + 1
	}
	return lo, hi
}

// niceStep returns the least of 1, 2 and 5 times a power of ten that is no less than v.
func niceStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// niceFloor returns the greatest of 1, 2 and 5 times a power of ten that is no more
// than v.
func niceFloor(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{5, 2} {
		if m*power <= v*(1+1e-9) {
			return m * power
		}
	}
	return power
}

// multiples lists the multiples of step from lo to hi. It multiplies instead of adding,
// so that 0.1 three times is not 0.30000000000000004 ten ticks later.
func multiples(lo, hi, step float64) (ticks []float64) {
	for i := math.Ceil(lo/step - 1e-9); i*step <= hi+step*1e-9; i++ {
		ticks = append(ticks, i*step+0) // + 0 turns -0 into 0
	}
	return ticks
}

// powers lists the given multiples of powers of ten from lo to hi.
func powers(lo, hi float64, times ...float64) (ticks []float64) {
	for e := math.Floor(math.Log10(lo)); e <= math.Ceil(math.Log10(hi)); e++ {
		for _, m := range times {
			v := m * math.Pow(10, e)
			if v >= lo*(1-1e-9) && v <= hi*(1+1e-9) {
				ticks = append(ticks, v)
			}
		}
	}
	return ticks
}

// timeSteps are the steps between the labels of a time axis; beyond a day they double.
var timeSteps = []time.Duration{
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

func timeStep(total time.Duration, most int) time.Duration {
	for _, step := range timeSteps {
		if total/step < time.Duration(most) {
			return step
		}
	}
	step := 24 * time.Hour
	for total/step >= time.Duration(most) {
		step *= 2
	}
	return step
}

// timeLabel writes t in the one unit that suits the step between labels, so that an
// axis does not change units half way.
func timeLabel(t, step time.Duration) string {
	switch {
	case step >= time.Hour:
		return Number(t.Hours()) + " h"
	case step >= time.Minute:
		return Number(t.Minutes()) + " min"
	case step >= time.Second:
		return Number(t.Seconds()) + " s"
	}
	return Number(float64(t)/1e6) + " ms"
}
