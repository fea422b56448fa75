package connectapi

import (
	"cmp"
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
}

// query returns the query of a request. Its plain cost is cost or, if that is nil, 1.
func query(req asked, cost *int64) (q ruleset.Query, err *call.Error) {
	q = ruleset.Query{Key: req.GetKey(), Cost: 1, Implied: cost == nil}
	if cost != nil {
		q.Cost = *cost
	}
	if req.GetPolicy() == "" {
		return q, noPolicy()
	}
	if err := checkKey(`"key"`, q.Key); err != nil {
		return q, err
	}
	if err := checkRange(`"cost"`, q.Cost, weir.MaxCost); err != nil {
		return q, err
	}
	if q.Keys, err = attributes(req.GetKeys()); err != nil {
		return q, err
	}
	q.Costs, err = costs("costs", req.GetCosts())
	return q, err
}

// attributes returns a request's keys sorted by name, so that of several invalid ones always the
// same is reported.
func attributes(keys map[string]string) ([]ruleset.Attribute, *call.Error) {
	if len(keys) == 0 {
		return nil, nil
	}
	if len(keys) > call.MaxKeys {
		return nil, call.Invalid(`"keys" may have %d entries`, call.MaxKeys)
	}
	list := make([]ruleset.Attribute, 0, len(keys))
	for name, value := range keys {
		list = append(list, ruleset.Attribute{Name: name, Value: value})
	}
	slices.SortFunc(list, func(a, b ruleset.Attribute) int { return cmp.Compare(a.Name, b.Name) })
	for _, a := range list {
		if err := checkKey(`a value of "keys"`, a.Value); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// costs returns the amounts of a field, sorted by unit.
func costs(field string, units map[string]int64) ([]ruleset.Cost, *call.Error) {
	if len(units) == 0 {
		return nil, nil
	}
	if len(units) > call.MaxUnits {
		return nil, call.Invalid("%q may have %d entries", field, call.MaxUnits)
	}
	list := make([]ruleset.Cost, 0, len(units))
	for unit, amount := range units {
		list = append(list, ruleset.Cost{Unit: unit, Amount: amount})
	}
	slices.SortFunc(list, func(a, b ruleset.Cost) int { return cmp.Compare(a.Unit, b.Unit) })
	for _, c := range list {
		if err := checkRange(`a value of "`+field+`"`, c.Amount, weir.MaxCost); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func noPolicy() *call.Error { return call.Invalid(`"policy" is missing: the name of a policy`) }

func checkKey(what, key string) *call.Error {
	if storeapi.CheckKey(key) != nil {
		return call.Invalid("%s has %d bytes: at most %d fit; hash longer ones", what, len(key), weir.MaxKeyBytes)
	}
	return nil
}

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

// maxWait converts the maximum wait of a check.
func maxWait(ms int64) (time.Duration, *call.Error) {
	return call.Milliseconds(ms), checkRange(`"max_wait_ms"`, ms, ruleset.MaxWait.Milliseconds())
}

// lasts converts the TTL of a reservation.
func lasts(ms int64) (time.Duration, *call.Error) {
	return call.TTL(ms), checkRange(`"ttl_ms"`, ms, compiled.MaxTTL.Milliseconds())
}
