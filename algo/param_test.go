package algo

import (
	"errors"
	"regexp"
	"strconv"
	"testing"
)

// bound finds the number in a problem that says what would fit.
var bound = regexp.MustCompile(`(?:at most|and|least) (\d+)`)

// TestParamErrors: what cannot be built is refused with the field's name, and
// what the message says would fit does.
func TestParamErrors(t *testing.T) {
	gcra := func(rate, per, burst, debt int64) func() error {
		return func() error { _, err := NewGCRA(rate, per, burst, debt, 0); return err }
	}
	fixed := func(rate, per int64) func() error {
		return func() error { _, err := NewFixed(rate, per, 0); return err }
	}
	for name, c := range map[string]struct {
		build func() error
		field string
		value any
		fits  func(n int64) func() error // builds with the number that is said to fit
	}{
		"rate 0":             {gcra(0, second, 1, 0), "rate", int64(0), nil},
		"rate below 0":       {gcra(-5, second, 1, 0), "rate", int64(-5), nil},
		"rate too high":      {gcra(MaxRate+1, day, 1, 0), "rate", MaxRate + 1, func(n int64) func() error { return gcra(n, maxFill, 1, 0) }},
		"per 0":              {gcra(1, 0, 1, 0), "per", int64(0), nil},
		"per below 0":        {gcra(1, -second, 1, 0), "per", -second, nil},
		"per too long":       {gcra(1, maxFill+1, 1, 0), "per", maxFill + 1, nil},
		"burst 0":            {gcra(1, second, 0, 0), "burst", int64(0), nil},
		"burst too high":     {gcra(2, 1, MaxRate+1, 0), "burst", MaxRate + 1, func(n int64) func() error { return gcra(2, 1, n, 0) }},
		"burst takes years":  {gcra(1, year, 41, 0), "burst", int64(41), func(n int64) func() error { return gcra(1, year, n, 0) }},
		"debt below 0":       {gcra(1, second, 1, -1), "max_debt", int64(-1), nil},
		"debt takes years":   {gcra(1, year, 30, 11), "max_debt", int64(11), func(n int64) func() error { return gcra(1, year, 30, n) }},
		"debt beyond a cost": {gcra(10, second, 1, MaxCost+1), "max_debt", MaxCost + 1, func(n int64) func() error { return gcra(10, second, 1, n) }},
		"3 per ns":           {gcra(3, 1, 1, 0), "rate", int64(3), func(n int64) func() error { return gcra(n, 1, 1, 0) }},
		"3 per ns, odd":      {gcra(21, 7, 1, 0), "rate", int64(21), func(n int64) func() error { return gcra(n, 7, 1, 0) }},
		"gcra too empty": {
			func() error { _, err := NewGCRA(1, 1, 1, 0, FillSteps+1); return err },
			"initial", uint32(FillSteps + 1),
			func(n int64) func() error {
				return func() error { _, err := NewGCRA(1, 1, 1, 0, Fill(n)); return err }
			},
		},
		"fixed rate 0":       {fixed(0, second), "rate", int64(0), nil},
		"fixed per 0":        {fixed(1, 0), "per", int64(0), nil},
		"fixed does not fit": {fixed(1<<31, second), "rate", int64(1 << 31), func(n int64) func() error { return fixed(n, second) }},
		"fixed of 1 ns":      {fixed(2, 1), "rate", int64(2), func(n int64) func() error { return fixed(n, 1) }},
		"fixed too empty": {
			func() error { _, err := NewFixed(1, second, FillSteps+1); return err },
			"initial", uint32(FillSteps + 1), nil,
		},
		"calendar rate 0": {
			func() error { _, err := NewCalendarFixed(0, calendars[0], 0); return err },
			"rate", int64(0), nil,
		},
		"calendar rate": {
			func() error { _, err := NewCalendarFixed(MaxRate, calendars[0], 0); return err },
			"rate", MaxRate,
			func(n int64) func() error {
				return func() error { _, err := NewCalendarFixed(n, calendars[0], 0); return err }
			},
		},
		"anchored rate":      {func() error { _, err := NewAnchored(0, second, 0); return err }, "rate", int64(0), nil},
		"anchored per":       {func() error { _, err := NewAnchored(1, 0, 0); return err }, "per", int64(0), nil},
		"anchored too empty": {func() error { _, err := NewAnchored(1, second, FillSteps+1); return err }, "initial", uint32(FillSteps + 1), nil},
		"sliding rate":       {func() error { _, err := NewSliding(0, second, 0); return err }, "rate", int64(0), nil},
		"sliding per":        {func() error { _, err := NewSliding(1, -1, 0); return err }, "per", int64(-1), nil},
		"log rate 0":         {func() error { _, err := NewSlidingLog(0, second, 0); return err }, "rate", int64(0), nil},
		"log rate too high": {
			func() error { _, err := NewSlidingLog(MaxLogRate+1, second, 0); return err },
			"rate", int64(MaxLogRate + 1),
			func(n int64) func() error { return func() error { _, err := NewSlidingLog(n, second, 0); return err } },
		},
		"log per":       {func() error { _, err := NewSlidingLog(1, 0, 0); return err }, "per", int64(0), nil},
		"log too empty": {func() error { _, err := NewSlidingLog(1, 1, FillSteps+1); return err }, "initial", uint32(FillSteps + 1), nil},
		"slots 0":       {func() error { _, err := NewSlots(0); return err }, "rate", int64(0), nil},
		"slots too many": {
			func() error { _, err := NewSlots(MaxRate + 1); return err },
			"rate", MaxRate + 1,
			func(n int64) func() error { return func() error { _, err := NewSlots(n); return err } },
		},
		"dual of nothing": {func() error { _, err := NewDual(0, 0, 0); return err }, "rate", 0, nil},
		"dual below 0":    {func() error { _, err := NewDual(-1, 5, 0); return err }, "rate", int64(-1), nil},
		"dual minute < 0": {func() error { _, err := NewDual(5, -5, 0); return err }, "rate", int64(-5), nil},
		"dual second": {
			func() error { _, err := NewDual(MaxPerSecond+1, 0, 0); return err },
			"rate", int64(MaxPerSecond + 1),
			func(n int64) func() error { return func() error { _, err := NewDual(n, 0, 0); return err } },
		},
		"dual minute": {
			func() error { _, err := NewDual(1, MaxPerMinute+1, 0); return err },
			"rate", int64(MaxPerMinute + 1),
			func(n int64) func() error { return func() error { _, err := NewDual(1, n, 0); return err } },
		},
		"dual too empty": {func() error { _, err := NewDual(1, 1, FillSteps+1); return err }, "initial", uint32(FillSteps + 1), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var bad *ParamError
			if err := c.build(); !errors.As(err, &bad) {
				t.Fatalf("error %v", err)
			}
			if bad.Field != c.field || bad.Value != c.value || bad.Problem == "" {
				t.Errorf("%+v, want field %s, value %v", bad, c.field, c.value)
			}
			if c.fits == nil {
				return
			}
			m := bound.FindStringSubmatch(bad.Problem)
			if m == nil {
				t.Fatalf("%q does not say what would fit", bad.Problem)
			}
			n, err := strconv.ParseInt(m[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.fits(n)(); err != nil {
				t.Errorf("%q: %d does not fit: %v", bad.Problem, n, err)
			}
		})
	}
}

// TestParamBoundsAreTight: one more than what is said to fit does not.
func TestParamBoundsAreTight(t *testing.T) {
	for _, per := range []int64{1, 7, 1_000, second, minute, day, year, maxFill} {
		f := must(t, fixedSpec(1, per)).(*Fixed)
		if most := int64(f.most); most < MaxRate {
			if _, err := NewFixed(most+1, per, 0); err == nil {
				t.Errorf("fixed window of %d ns: %d fits", per, most+1)
			}
			must(t, fixedSpec(most, per))
		}
		if most := fillable(1, per); most < MaxRate {
			must(t, gcraSpec(1, per, most))
			if _, err := NewGCRA(1, per, most+1, 0, 0); err == nil {
				t.Errorf("gcra of 1 per %d ns: burst %d fits", per, most+1)
			}
		}
	}
}
