package pacer

import (
	"math"
	"strings"
	"testing"
)

func TestParseSpec(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		line      string
		want      Spec
		canonical string
	}{
		{"500", Spec{Rate: 500}, "500"},
		{"0.5", Spec{Rate: 0.5}, "0.5"},
		{"5k", Spec{Rate: 5000}, "5000"},
		{"1.5M", Spec{Rate: 1_500_000}, "1500000"},
		{"1.1k", Spec{Rate: 1100}, "1100"},
		{"4.35k", Spec{Rate: 4350}, "4350"}, // 4.35 × 1000 is less
		{"1e6", Spec{Rate: 1e6}, "1000000"},
		{"2E-3", Spec{Rate: 0.002}, "0.002"},
		{"2e+3", Spec{Rate: 2000}, "2000"},
		{"2e3k", Spec{Rate: 2e6}, "2000000"},
		{"0.000001", Spec{Rate: MinRate}, "0.000001"},
		{"1e10", Spec{Rate: MaxRate}, "10000000000"},
		{"10000M", Spec{Rate: MaxRate}, "10000000000"},

		{"500,1.1", Spec{Rate: 500, Mode: Burst, BurstRatio: 1.1}, "500,1.1"},
		{"500,1000", Spec{Rate: 500, Mode: Burst, BurstRatio: 1000}, "500,1000"},
		{"500,1.000000000000001", Spec{Rate: 500, Mode: Burst, BurstRatio: 1.000000000000001}, "500,1.000000000000001"},
		{"500,1", Spec{Rate: 500, Mode: Strict, BurstRatio: 1}, "500,1"},
		{"500,1.0", Spec{Rate: 500, Mode: Strict, BurstRatio: 1}, "500,1"},
		{"500,strictness=0", Spec{Rate: 500}, "500"},
		{"500,strictness=0.03125", Spec{Rate: 500}, "500"},
		{"500,strictness=0.999", Spec{Rate: 500}, "500"},
		{"500,strictness=1", Spec{Rate: 500, Mode: Strict, BurstRatio: 1}, "500,1"},
		{"500,strictness=1.15", Spec{Rate: 500, Mode: Burst, BurstRatio: 1.15}, "500,1.15"},

		{"500,start", Spec{Rate: 500}, "500"},
		{"500,configure", Spec{Rate: 500, Verb: DoConfigure}, "500,configure"},
		{"500,restart", Spec{Rate: 500, Verb: DoRestart}, "500,restart"},
		{"500,stop", Spec{Rate: 500, Verb: DoStop}, "500,stop"},
		{"500,activity", Spec{Rate: 500}, "500"},
		{"500,thread", Spec{Rate: 500, Scope: Thread}, "500,thread"},
		{"500,stop,thread", Spec{Rate: 500, Verb: DoStop, Scope: Thread}, "500,stop,thread"},
		{" 20k\t, 1.25 ,restart , thread ", Spec{20_000, 1.25, Burst, DoRestart, Thread}, "20000,1.25,restart,thread"},
	} {
		got, err := ParseSpec(test.line)
		if err != nil || got != test.want {
			t.Errorf("%q: %+v, %v, want %+v", test.line, got, err, test.want)
			continue
		}
		if got.String() != test.canonical {
			t.Errorf("%q: String is %q, want %q", test.line, got, test.canonical)
		}
		sound(t, got)
	}
}

// sound fails unless a Spec that was parsed is valid and survives String.
func sound(t *testing.T, s Spec) {
	t.Helper()
	if err := s.Config().Validate(); err != nil {
		t.Errorf("%+v: %v", s, err)
	}
	if err := s.Validate(); err != nil {
		t.Errorf("%+v: %v", s, err)
	}
	if again, err := ParseSpec(s.String()); err != nil || again != s {
		t.Errorf("%+v became %q and then %+v, %v", s, s, again, err)
	}
}

// TestBadSpecs: the error shows the part, where it is, and what should be there.
func TestBadSpecs(t *testing.T) {
	t.Parallel()
	const (
		rate   = "want a rate such as 500, 2.5 or 5k"
		rates  = "want a rate from 1e-06 to 1e+10 per second"
		ratio  = "want a burst ratio such as 1.1, strictness=x, configure"
		ratios = "want a burst ratio from 1 to 1000"
		verb   = "want configure, start, restart, stop, activity or thread"
		scope  = "want activity or thread"
		none   = "want nothing more"
	)
	for _, test := range []struct{ line, part, want string }{
		{"", `part 1, ""`, rate},
		{"  ", `part 1, ""`, rate},
		{",500", `part 1, ""`, rate},
		{"start", `part 1, "start"`, rate},
		{"fast", `part 1, "fast"`, rate},
		{"NaN", `part 1, "NaN"`, rate},
		{"Inf", `part 1, "Inf"`, rate},
		{"0x10", `part 1, "0x10"`, rate},
		{"0x1p4", `part 1, "0x1p4"`, rate},
		{"1_000", `part 1, "1_000"`, rate},
		{"+5", `part 1, "+5"`, rate},
		{"-5", `part 1, "-5"`, rate},
		{"5.", `part 1, "5."`, rate},
		{".5", `part 1, ".5"`, rate},
		{"1.2.3", `part 1, "1.2.3"`, rate},
		{"5e", `part 1, "5e"`, rate},
		{"5e+", `part 1, "5e+"`, rate},
		{"5e+-1", `part 1, "5e+-1"`, rate},
		{"5e1.5", `part 1, "5e1.5"`, rate},
		{"5e00001", `part 1, "5e00001"`, rate},
		{"e5", `part 1, "e5"`, rate},
		{"k", `part 1, "k"`, rate},
		{"5K", `part 1, "5K"`, rate},
		{"5m", `part 1, "5m"`, rate},
		{"5kk", `part 1, "5kk"`, rate},
		{"5 k", `part 1, "5 k"`, rate},
		{"5k2", `part 1, "5k2"`, rate},
		{"٥", `part 1, "٥"`, rate},
		{"500;1.1", `part 1, "500;1.1"`, rate},

		{"0", `part 1, "0"`, rates},
		{"0.0", `part 1, "0.0"`, rates},
		{"0.0000009", `part 1, "0.0000009"`, rates},
		{"1e-9999", `part 1, "1e-9999"`, rates},
		{"10000000001", `part 1, "10000000001"`, rates},
		{"1e9999", `part 1, "1e9999"`, rates},

		{"500,", `part 2, ""`, ratio},
		{"500,,start", `part 2, ""`, ratio},
		{"500,quickly", `part 2, "quickly"`, ratio},
		{"500,Start", `part 2, "Start"`, ratio},
		{"500,NaN", `part 2, "NaN"`, ratio},
		{"500,strictness", `part 2, "strictness"`, ratio},
		{"500,0", `part 2, "0"`, ratios},
		{"500,+1.1", `part 2, "+1.1"`, ratios},
		{"500,-1.1", `part 2, "-1.1"`, ratios},
		{"500,1k", `part 2, "1k"`, ratios},
		{"500,1000.1", `part 2, "1000.1"`, ratios},
		{"500,1e999", `part 2, "1e999"`, ratios},
		{"500,0.25", `part 2, "0.25"`, ratios + "; the scale of strictness is written strictness=0.25"},
		{"500,strictness=", `part 2, "strictness="`, "want a strictness from 0 to 1000"},
		{"500,strictness=-1", `part 2, "strictness=-1"`, "want a strictness from 0 to 1000"},
		{"500,strictness=1001", `part 2, "strictness=1001"`, "want a strictness from 0 to 1000"},

		{"500,1.1,1.2", `part 3, "1.2"`, verb},
		{"500,strictness=1,1.2", `part 3, "1.2"`, verb},
		{"500,strictness=0,strictness=0", `part 3, "strictness=0"`, verb},
		{"500,1.1,", `part 3, ""`, verb},
		{"500,start,1.1", `part 3, "1.1"`, scope},
		{"500,start,start", `part 3, "start"`, scope},
		{"500,start,stop", `part 3, "stop"`, scope},
		{"500,thread,start", `part 3, "start"`, none},
		{"500,thread,thread", `part 3, "thread"`, none},
		{"500,1.1,start,thread,", `part 5, ""`, none},
	} {
		got, err := ParseSpec(test.line)
		if err == nil {
			t.Errorf("%q: %+v, want an error", test.line, got)
			continue
		}
		if got != (Spec{}) || !strings.Contains(err.Error(), test.part) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %+v, %v\nshould show %s, %s", test.line, got, err, test.part, test.want)
		}
	}
}

// TestSpecConfig: a Spec of one's own need not say what ParseSpec would.
func TestSpecConfig(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		spec Spec
		want Config
		line string
	}{
		{Spec{Rate: 5}, Config{Rate: 5}, "5"},
		{Spec{Rate: 5, Mode: Strict}, Config{Rate: 5, Mode: Strict}, "5,1"},
		{Spec{Rate: 5, Mode: Burst}, Config{Rate: 5, Mode: Burst}, "5,1.1"},
		{Spec{Rate: 5, Mode: Burst, BurstRatio: 2}, Config{Rate: 5, Mode: Burst, BurstRatio: 2}, "5,2"},
	} {
		if got := test.spec.Config(); got != test.want {
			t.Errorf("%+v: %+v, want %+v", test.spec, got, test.want)
		}
		if got := test.spec.String(); got != test.line {
			t.Errorf("%+v: %q, want %q", test.spec, got, test.line)
		}
	}
}

func TestSpecValidate(t *testing.T) {
	t.Parallel()
	err := Spec{Rate: math.NaN(), Mode: 9, BurstRatio: 0.5, Verb: 8, Scope: 7}.Validate()
	for _, says := range []string{"rate NaN", "mode 9", "burst ratio 0.5", "verb 8", "scope 7"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
	if got := Verb(8).String() + " " + Scope(7).String(); got != "Verb(8) Scope(7)" {
		t.Error(got)
	}
}

func FuzzSpec(f *testing.F) {
	for _, line := range []string{
		"500", "5k,1.1", "1.5M,1,restart", "2e-3,strictness=0.25,stop,thread", " 20000 , 1.25 , start , activity ",
		"", ",", "500,0.5", "1e9999", "NaN", "0x10", "500,thread,start", "1.000000000000000000000001,1.1",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		spec, err := ParseSpec(line)
		if err == nil {
			sound(t, spec)
		} else if spec != (Spec{}) {
			t.Errorf("%q: %+v with %v", line, spec, err)
		}
	})
}
