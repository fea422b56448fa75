package connectapi

import (
	"maps"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/storeapi"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
)

// asked is the common part of checks and reservations.
type asked interface {
	GetPolicy() string
	GetKey() string
	GetKeys() map[string]string
	GetCosts() map[string]int64
	GetClass() string
}

// query returns the query of a request. Its plain cost is cost or, if that is nil, 1.
func query(req asked, cost *int64) (q ruleset.Query, err *call.Error) {
	q = ruleset.Query{Key: req.GetKey(), Cost: 1, Implied: cost == nil, Class: req.GetClass()}
	if cost != nil {
		q.Cost = *cost
	}
	if req.GetPolicy() == "" {
		return q, noPolicy()
	}
	if err := checkKey(`"key"`, q.Key); err != nil {
		return q, err
	}
	if err := checkCost(`"cost"`, q.Cost); err != nil {
		return q, err
	}
	if q.Keys, err = entries("keys", req.GetKeys(), call.MaxKeys, checkKey, attribute); err != nil {
		return q, err
	}
	q.Costs, err = costs("costs", req.GetCosts())
	return q, err
}

// entries converts the entries of a field, sorted by name, so that of several invalid ones always the
// same is reported.
func entries[V, E any](field string, values map[string]V, most int, check func(what string, v V) *call.Error, convert func(name string, v V) E) ([]E, *call.Error) {
	if len(values) == 0 {
		return nil, nil
	}
	if len(values) > most {
		return nil, call.Invalid("%q may have %d entries", field, most)
	}
	list := make([]E, 0, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := check(`a value of "`+field+`"`, values[name]); err != nil {
			return nil, err
		}
		list = append(list, convert(name, values[name]))
	}
	return list, nil
}

func attribute(name, value string) ruleset.Attribute {
	return ruleset.Attribute{Name: name, Value: value}
}

// costs returns the amounts of a field.
func costs(field string, units map[string]int64) ([]ruleset.Cost, *call.Error) {
	return entries(field, units, call.MaxUnits, checkCost, func(unit string, n int64) ruleset.Cost { return ruleset.Cost{Unit: unit, Amount: n} })
}

func noPolicy() *call.Error { return call.Invalid(`"policy" is missing: the name of a policy`) }

func checkKey(what, key string) *call.Error {
	if storeapi.CheckKey(key) != nil {
		return call.Invalid("%s has %d bytes: at most %d fit; hash longer ones", what, len(key), weir.MaxKeyBytes)
	}
	return nil
}

func checkCost(what string, n int64) *call.Error { return checkRange(what, n, weir.MaxCost) }

// checkRange refuses numbers outside 0 to most.
func checkRange(what string, n, most int64) *call.Error {
	switch {
	case n < 0:
		return call.Invalid("%s must not be negative", what)
	case n > most:
		return call.Invalid("%s must be at most %d", what, most)
	}
	return nil
}

// maxWait converts the maximum wait of a check or reservation.
func maxWait(ms int64) (time.Duration, *call.Error) {
	return call.Milliseconds(ms), checkRange(`"max_wait_ms"`, ms, ruleset.MaxWait.Milliseconds())
}

// lasts converts the TTL of a reservation.
func lasts(ms int64) (time.Duration, *call.Error) {
	return call.TTL(ms), checkRange(`"ttl_ms"`, ms, compiled.MaxTTL.Milliseconds())
}
