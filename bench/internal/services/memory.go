package services

import (
	"errors"
	"fmt"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// goalMemory is how many MiB a daemon may have more with a million keys than without.
const goalMemory = 64

const mib = 1 << 20

// memorySurvey asks how much memory keys take in the daemon.
func memorySurvey(s Sizes) harness.Survey {
	var goal float64
	if s.Most >= Whole.Most {
		goal = goalMemory
	}
	return harness.Survey{
		Name: fmt.Sprintf("services, memory of %s keys", harness.Grouped(s.Most)),
		Note: "Of the whole process (RSS), before the first request and after one for each key, in batches of 100 over gRPC.",
		Figures: []harness.Figure{
			{Name: "idle", Unit: "MiB"},
			{Name: "more with keys", Unit: "MiB", AtMost: goal},
		},
		Subjects: []harness.Subject{{
			Name: "weir, memory", Kind: harness.Weir,
			Ask: func(func(string)) ([]float64, error) { return growth(s.Most) },
		}},
	}
}

// growth returns the MiB of a daemon before the first call, and how many more it has when
// it knows so many keys.
func growth(keys int) (values []float64, err error) {
	place, err := newSite(false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, place.close()) }()
	one, err := place.server(memory)
	if err != nil {
		return nil, err
	}
	idle, err := one.Memory()
	if err != nil {
		return nil, err
	}
	q := scenario{rule: scarce, keys: newKeys(keys), callers: 1}
	l, err := q.open(place, callersOfGRPC()[0])
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.askers.close()) }()
	if err := l.fill(); err != nil {
		return nil, err
	}
	full, err := one.Memory()
	return []float64{float64(idle) / mib, float64(full-idle) / mib}, err
}
