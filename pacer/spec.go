package pacer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Spec is a pacer in one line, as it is given on a command line and changed while
// a program runs:
//
//	rate[,burst_ratio][,configure|start|restart|stop][,activity|thread]
//
// for example "500", "5k,1.1", "0.5,restart" or "20000,1.25,start,thread". The
// order is fixed, and each part may be left out but the rate. Spaces around a part
// do not matter.
//
// A rate is a decimal number of units per second, with an exponent if need be,
// and k or M for thousands or millions: 5k is 5000, 1.5M is 1,500,000 and 2e-3 is
// one in 500 seconds. A burst ratio is a decimal number without k and M.
//
// The burst ratio chooses the mode. EngineBlock's parameter strictness has another
// scale, so it has to be named, as in "500,strictness=0.25":
//
//	burst_ratio  strictness  mode
//	not given    0           Average: lateness is caught up at once, within the credit
//	             0 < x < 1   Average: catching up a fraction of it has no exact meaning
//	1            1           Strict: lateness is forfeited
//	x > 1        x > 1       Burst: lateness is caught up at x × rate
//	x < 1                    an error
type Spec struct {
	Rate       float64 // 5000, in units per second
	BurstRatio float64 // 1.1, or 1 with Strict; 0 = not given
	Mode       Mode    // Burst
	Verb       Verb    // DoRestart; the default is DoStart
	Scope      Scope   // Thread; the default is Activity
}

// Verb says what to do with a pacer besides giving it a Config.
type Verb uint8

const (
	DoStart     Verb = iota // let it run, from where it is
	DoConfigure             // leave it running or stopped, as it is
	DoRestart               // let it run as if it were new
	DoStop                  // let everybody wait until it is started
)

var verbs = [...]string{DoStart: "start", DoConfigure: "configure", DoRestart: "restart", DoStop: "stop"}

// String returns "start", "configure", "restart" or "stop".
func (v Verb) String() string {
	if int(v) < len(verbs) {
		return verbs[v]
	}
	return fmt.Sprintf("Verb(%d)", v)
}

// Scope says who shares a pacer.
type Scope uint8

const (
	Activity Scope = iota // all goroutines share one, and its rate
	Thread                // each goroutine has its own, with the whole rate
)

var scopes = [...]string{Activity: "activity", Thread: "thread"}

// String returns "activity" or "thread".
func (s Scope) String() string {
	if int(s) < len(scopes) {
		return scopes[s]
	}
	return fmt.Sprintf("Scope(%d)", s)
}

// ParseSpec reads a Spec. What it returns is valid: New accepts its Config. The
// error shows the part that it does not accept.
func ParseSpec(s string) (Spec, error) {
	var (
		spec  Spec
		place = placeRate
		n     int
	)
	for text := range strings.SplitSeq(s, ",") {
		n++
		part := strings.Trim(text, " \t")
		at, err := spec.set(place, part)
		if err != nil {
			return Spec{}, fmt.Errorf("pacer: spec %q: part %d, %q: %w", s, n, part, err)
		}
		place = at + 1
	}
	return spec, nil
}

// A place is where a part belongs. Parts come in this order.
type place uint8

const (
	placeRate place = iota
	placeRatio
	placeVerb
	placeScope
	placeEnd
)

// expected says what may come at a place.
var expected = [...]string{
	placeRate:  "a rate such as 500, 2.5 or 5k",
	placeRatio: "a burst ratio such as 1.1, strictness=x, configure, start, restart, stop, activity or thread",
	placeVerb:  "configure, start, restart, stop, activity or thread",
	placeScope: "activity or thread",
	placeEnd:   "nothing more",
}

// set puts a part where it belongs, which is next or later, and returns where.
func (s *Spec) set(next place, part string) (place, error) {
	at := placeOf(next, part)
	if at < next || at == placeEnd {
		return 0, fmt.Errorf("want %s", expected[next])
	}
	switch at {
	case placeRate:
		return at, s.setRate(part)
	case placeRatio:
		return at, s.setRatio(part)
	case placeVerb:
		s.Verb = Verb(index(verbs[:], part))
	case placeScope:
		s.Scope = Scope(index(scopes[:], part))
	}
	return at, nil
}

// placeOf tells the parts apart: the first is the rate, the others are known by
// their looks. It returns placeEnd for what is none of them.
func placeOf(next place, part string) place {
	switch {
	case next == placeRate:
		return placeRate
	case index(verbs[:], part) >= 0:
		return placeVerb
	case index(scopes[:], part) >= 0:
		return placeScope
	case strings.HasPrefix(part, strictness), looksNumeric(part):
		return placeRatio
	default:
		return placeEnd
	}
}

const strictness = "strictness="

func index(names []string, name string) int {
	for i := range names {
		if names[i] == name {
			return i
		}
	}
	return -1
}

func (s *Spec) setRate(part string) error {
	rate, ok := parseDecimal(part, true)
	if !ok {
		return fmt.Errorf("want %s", expected[placeRate])
	}
	if !(rate >= MinRate && rate <= MaxRate) {
		return fmt.Errorf("want a rate from %v to %v per second", float64(MinRate), float64(MaxRate))
	}
	s.Rate = rate
	return nil
}

// setRatio reads the second part, by the scale that it names.
func (s *Spec) setRatio(part string) error {
	text, strict := strings.CutPrefix(part, strictness)
	x, ok := parseDecimal(text, false)
	switch {
	case strict && (!ok || x > maxRatio):
		return fmt.Errorf("want a strictness from 0 to %d", maxRatio)
	case strict && x < 1:
		return nil // Average
	case !ok || x > maxRatio:
		return fmt.Errorf("want a burst ratio from 1 to %d", maxRatio)
	case x < 1:
		return fmt.Errorf("want a burst ratio from 1 to %d; the scale of strictness is written strictness=%s", maxRatio, text)
	case x == 1:
		s.Mode = Strict
	default:
		s.Mode = Burst
	}
	s.BurstRatio = x
	return nil
}

// Validate returns what is wrong with a Spec that was not parsed, all of it.
func (s Spec) Validate() error {
	problems := []error{s.Config().Validate()}
	if int(s.Verb) >= len(verbs) {
		problems = append(problems, fmt.Errorf("pacer: verb %d: want DoStart, DoConfigure, DoRestart or DoStop", s.Verb))
	}
	if int(s.Scope) >= len(scopes) {
		problems = append(problems, fmt.Errorf("pacer: scope %d: want Activity or Thread", s.Scope))
	}
	return errors.Join(problems...)
}

// Config returns the Config that a Spec stands for.
func (s Spec) Config() Config {
	return Config{Rate: s.Rate, Mode: s.Mode, BurstRatio: s.BurstRatio}
}

// String returns the shortest line that stands for the Spec: "5000,1.1,stop". It
// leaves out what is the default. ParseSpec makes the same Spec of it, if it made
// this one.
func (s Spec) String() string {
	line := formatDecimal(s.Rate)
	switch s.Mode {
	case Strict:
		line += ",1"
	case Burst:
		line += "," + formatDecimal(s.Config().withDefaults().BurstRatio)
	}
	if s.Verb != DoStart {
		line += "," + s.Verb.String()
	}
	if s.Scope != Activity {
		line += "," + s.Scope.String()
	}
	return line
}

// formatDecimal returns the shortest digits that read as f, without an exponent.
func formatDecimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// parseDecimal reads digits[.digits][e[±]digits], and k or M after it if they may
// come. It leaves out what else strconv reads: signs, hexadecimals, underscores,
// Inf and NaN. A number that is too great for a float64 is infinite, one that is
// too small is 0.
func parseDecimal(s string, suffix bool) (f float64, ok bool) {
	mantissa, exponent, ok := cutDecimal(s, suffix)
	if !ok {
		return 0, false
	}
	f, _ = strconv.ParseFloat(mantissa+"e"+strconv.Itoa(exponent), 64) // only its range can be wrong
	return f, true
}

// cutDecimal takes a number apart. The suffix becomes part of the exponent, so
// that 1.1k is rounded as 1100 is.
func cutDecimal(s string, suffix bool) (mantissa string, exponent int, ok bool) {
	if suffix {
		s, exponent = cutSuffix(s)
	}
	mantissa, written, found := strings.Cut(strings.ToLower(s), "e")
	if found {
		unsigned := strings.TrimLeft(written, "+-")
		if len(written)-len(unsigned) > 1 || len(unsigned) > maxExponentDigits || !digits(unsigned) {
			return "", 0, false
		}
		e, _ := strconv.Atoi(written)
		exponent += e
	}
	whole, part, found := strings.Cut(mantissa, ".")
	return mantissa, exponent, digits(whole) && (!found || digits(part))
}

// maxExponentDigits keeps exponents far from overflow. All that a float64 can
// have fit.
const maxExponentDigits = 4

func cutSuffix(s string) (number string, exponent int) {
	if number, ok := strings.CutSuffix(s, "k"); ok {
		return number, 3
	}
	if number, ok := strings.CutSuffix(s, "M"); ok {
		return number, 6
	}
	return s, 0
}

// digits says whether s is decimal digits, at least one.
func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// looksNumeric says whether s is meant to be a number.
func looksNumeric(s string) bool {
	return s != "" && strings.ContainsAny(s[:1], "+-.0123456789")
}
