package budget

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/ruleset"
)

// Variables are the names of the environment variables that FromEnv reads.
func Variables() []string {
	names := make([]string, len(variables))
	for i, v := range variables {
		names[i] = v.name
	}
	return names
}

// A variable is a whole number in the environment.
type variable struct {
	name        string
	least, most int64
	value       func(*environment) *int64
}

// environment is what the variables say, with the defaults of those that are not set.
type environment struct {
	total, reserved, shared, window, warning, pause, unknown int64
	isSet                                                    map[string]bool
}

var variables = []variable{
	{"ALCHEMY_CU_PER_SECOND", 1, weir.MaxCost / 10, func(e *environment) *int64 { return &e.total }},
	{"ALCHEMY_RESERVED_CU", 0, weir.MaxCost / 10, func(e *environment) *int64 { return &e.reserved }},
	{"ALCHEMY_SHARED_CU", 0, weir.MaxCost / 10, func(e *environment) *int64 { return &e.shared }},
	{"ALCHEMY_WINDOW_SIZE_MS", 1, 10_000, func(e *environment) *int64 { return &e.window }},
	{"ALCHEMY_WARNING_THRESHOLD", 0, 100, func(e *environment) *int64 { return &e.warning }},
	{"ALCHEMY_PAUSE_THRESHOLD", 0, 100, func(e *environment) *int64 { return &e.pause }},
	{"ALCHEMY_DEFAULT_METHOD_COST", 0, MaxAmount, func(e *environment) *int64 { return &e.unknown }},
}

// FromEnv returns the configuration that environment variables describe, each of the form NAME=value as
// from os.Environ. Variables that are not set have these values:
//
//	ALCHEMY_CU_PER_SECOND        500    the account's throughput units per second
//	ALCHEMY_RESERVED_CU          60 %   of these, guaranteed for the class "realtime"
//	ALCHEMY_SHARED_CU            rest   of these, guaranteed for the class "backfill"
//	ALCHEMY_WINDOW_SIZE_MS       1000   how many milliseconds' worth may be used at once
//	ALCHEMY_WARNING_THRESHOLD    80     percent of utilisation
//	ALCHEMY_PAUSE_THRESHOLD      90     percent of utilisation
//	ALCHEMY_DEFAULT_METHOD_COST  20     of methods that the table of costs does not list
//
// Values that are wrong are errors, and so are names that begin like these but are none of them. 0 means 0.
//
// As in the preset alchemy-free, 3 % of the rates stays free, so that calls that are up to 100 ms longer on
// their way than others do not exceed the provider's ten seconds. Further limits, such as one of the month,
// can be added to the result.
func FromEnv(environ []string) (Config, error) {
	e, err := readEnvironment(environ)
	if err != nil {
		return Config{}, err
	}
	costs, err := BuiltinTable("alchemy")
	if err != nil {
		return Config{}, err
	}
	costs, err = costs.With(Overrides{Unknown: &Unknown{Default: Amounts{"cu": e.unknown, "throughput": e.unknown}}})
	if err != nil {
		return Config{}, err
	}
	return Config{
		Name: "alchemy",
		Limits: []ruleset.Limit{
			{Unit: "throughput", Limit: weir.Limit{Rate: usable(e.total), Per: weir.Every(time.Second), Burst: max(1, e.total*e.window/1000)}},
			{Unit: "throughput", Limit: weir.Limit{Name: "window", Rate: 10 * e.total, Per: weir.Every(alchemyWindow), Algorithm: weir.SlidingLog, OnError: weir.FailOpen}},
		},
		Classes:    []Class{{Name: "realtime", Guaranteed: usable(e.reserved)}, {Name: "backfill", Guaranteed: e.usableShared()}},
		Costs:      costs,
		Thresholds: Thresholds{Warning: new(int(e.warning)), Pause: new(int(e.pause))},
	}, nil
}

// usable returns 97 % of a rate, rounded down, but not 0 of one that is more.
func usable(rate int64) int64 { return max(min(1, rate), rate*97/100) }

// usableShared returns what is usable of the shared units. Of a few units the parts are rounded to more than the whole.
func (e *environment) usableShared() int64 {
	return min(usable(e.shared), usable(e.total)-usable(e.reserved))
}

func readEnvironment(environ []string) (*environment, error) {
	e := &environment{total: 500, window: 1000, warning: DefaultWarning, pause: DefaultPause, unknown: 20, isSet: map[string]bool{}}
	var problems []error
	for _, text := range environ {
		if name, value, ok := strings.Cut(text, "="); ok {
			problems = append(problems, e.set(name, value))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if !e.isSet["ALCHEMY_RESERVED_CU"] {
		e.reserved = e.total * 60 / 100
		if e.isSet["ALCHEMY_SHARED_CU"] {
			e.reserved = max(0, e.total-e.shared)
		}
	}
	if !e.isSet["ALCHEMY_SHARED_CU"] {
		e.shared = max(0, e.total-e.reserved)
	}
	return e, e.check()
}

// check refuses values that are wrong together.
func (e *environment) check() error {
	var problems []error
	if e.reserved > e.total || e.shared > e.total-e.reserved {
		problems = append(problems, envError("ALCHEMY_RESERVED_CU", e.reserved, fmt.Sprintf("and ALCHEMY_SHARED_CU %d must not be more than ALCHEMY_CU_PER_SECOND together, which is %d", e.shared, e.total)))
	}
	if e.warning > e.pause {
		problems = append(problems, envError("ALCHEMY_WARNING_THRESHOLD", e.warning, fmt.Sprintf("must not be more than ALCHEMY_PAUSE_THRESHOLD, which is %d", e.pause)))
	}
	return errors.Join(problems...)
}

// set sets the value of a variable. Variables of other programs are ignored.
func (e *environment) set(name, text string) error {
	for _, v := range variables {
		if v.name != name {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < v.least || n > v.most {
			return envError(name, text, fmt.Sprintf("must be a whole number from %d to %d", v.least, v.most))
		}
		*v.value(e), e.isSet[name] = n, true
		return nil
	}
	if looksOurs(name) {
		return envError(name, nil, "is no variable of a budget; there are "+strings.Join(Variables(), ", "))
	}
	return nil
}

// looksOurs reports whether a name begins with the first two words of a variable, so that a
// misspelt one is noticed. Others, such as ALCHEMY_API_KEY, belong to somebody else.
func looksOurs(name string) bool {
	for _, v := range variables {
		words := strings.SplitAfterN(v.name, "_", 3)
		if strings.HasPrefix(name, words[0]+words[1]) {
			return true
		}
	}
	return false
}

func envError(name string, value any, problem string) error {
	return &fielderr.Error{Package: "budget", Path: []any{name}, Value: value, Problem: problem}
}
