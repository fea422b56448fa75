package connectapi

import (
	"context"
	"fmt"
	"slices"
	"sync"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/server/internal/strictjson"
)

// CheckBatch is POST /v1/check/batch, with columns rather than rows.
func (s *service) CheckBatch(ctx context.Context, req *weirv1.CheckBatchRequest) (*weirv1.CheckBatchResponse, error) {
	w := works.Get().(*work)
	defer w.free()
	caller := call.CallerOf(ctx)
	items, bad := readItems(caller, req, w)
	if bad != nil {
		return nil, bad
	}
	kind := call.Each
	switch {
	case req.GetAtomic() && req.GetDebit():
		return nil, call.Invalid(`"debit" charges every check, "atomic" all or none: a batch is one or the other`)
	case req.GetAtomic():
		kind = call.All
	case req.GetDebit():
		kind = call.Debit
	}
	verdicts, bad := s.core.CheckBatch(ctx, caller, kind, items, w.verdicts)
	if bad != nil {
		return nil, bad
	}
	w.verdicts = verdicts
	return batchResponse(verdicts), nil
}

// work is the pooled memory of a batch.
type work struct {
	items    []ruleset.Item
	verdicts []ruleset.Verdict
}

var works = sync.Pool{New: func() any { return new(work) }}

func (w *work) free() {
	clear(w.items) // so that the pool retains no keys
	w.items = w.items[:0]
	works.Put(w)
}

// readItems converts columns to checks. It reports problems of the columns first, then those of single
// checks, then unknown policies.
func readItems(c call.Caller, req *weirv1.CheckBatchRequest, w *work) ([]ruleset.Item, *call.Error) {
	if err := checkColumns(req); err != nil {
		return nil, err
	}
	w.items = slices.Grow(w.items[:0], len(req.GetKey()))[:len(req.GetKey())]
	items := w.items
	for i := range items {
		if err := fill(&items[i], req, i); err != nil {
			return nil, err.In(i)
		}
	}
	fillKeys(items, req.GetKeys())
	if err := findRules(c, items, req); err != nil {
		return nil, err
	}
	fillCosts(items, req.GetCosts())
	return items, nil
}

// checkColumns refuses columns of different lengths, and duplicate columns.
func checkColumns(req *weirv1.CheckBatchRequest) *call.Error {
	n := len(req.GetKey())
	switch {
	case n > call.MaxChecks:
		return call.Invalid("a batch may have %d checks", call.MaxChecks)
	case n > 0 && len(req.GetPolicy()) == 0:
		return noPolicy()
	}
	for _, column := range []struct {
		name   string
		length int
	}{
		{"cost", len(req.GetCost())},
		{"peek", len(req.GetPeek())},
		{"max_wait_ms", len(req.GetMaxWaitMs())},
		{"policy_index", len(req.GetPolicyIndex())},
		{"class_index", len(req.GetClassIndex())},
	} {
		if err := checkLength(`"`+column.name+`"`, column.length, n); err != nil {
			return err
		}
	}
	if err := checkNamed("keys", req.GetKeys(), call.MaxKeys, (*weirv1.KeyColumn).GetName, (*weirv1.KeyColumn).GetKey, n); err != nil {
		return err
	}
	return checkNamed("costs", req.GetCosts(), call.MaxUnits, (*weirv1.CostColumn).GetUnit, (*weirv1.CostColumn).GetCost, n)
}

// checkLength refuses a column that is not empty and has another length than that of the keys.
func checkLength(column string, length, n int) *call.Error {
	if length != 0 && length != n {
		return call.Invalid(`%s has %d entries for %d checks: it has one for each entry of "key", or none`, column, length, n)
	}
	return nil
}

// checkNamed checks the columns of a field that have names.
func checkNamed[C, V any](field string, columns []C, most int, name func(C) string, values func(C) []V, n int) *call.Error {
	if len(columns) > most {
		return call.Invalid("%q may have %d entries", field, most)
	}
	for i, column := range columns {
		quoted := strictjson.Quote(name(column))
		if slices.ContainsFunc(columns[:i], func(c C) bool { return name(c) == name(column) }) {
			return call.Invalid("%q has %s twice", field, quoted)
		}
		if err := checkLength(fmt.Sprintf("the column %s of %q", quoted, field), len(values(column)), n); err != nil {
			return err
		}
	}
	return nil
}

// at returns an entry of a column, or the default if the column is empty.
func at[T any](column []T, i int, otherwise T) T {
	if len(column) == 0 {
		return otherwise
	}
	return column[i]
}

// fill makes the i-th check of a batch, without its rule.
func fill(item *ruleset.Item, req *weirv1.CheckBatchRequest, i int) (err *call.Error) {
	q := &item.Query
	q.Key, item.Peek = req.GetKey()[i], at(req.GetPeek(), i, false)
	q.Cost, q.Implied = at(req.GetCost(), i, 1), len(req.GetCost()) == 0
	if err := checkKey(`"key"`, q.Key); err != nil {
		return err
	}
	if err := checkCost(`"cost"`, q.Cost); err != nil {
		return err
	}
	for _, column := range req.GetKeys() {
		if err := checkKey(`a value of "keys"`, at(column.GetKey(), i, "")); err != nil {
			return err
		}
	}
	for _, column := range req.GetCosts() {
		if err := checkCost(`a value of "costs"`, at(column.GetCost(), i, 0)); err != nil {
			return err
		}
	}
	if q.MaxWait, err = maxWait(at(req.GetMaxWaitMs(), i, 0)); err != nil {
		return err
	}
	q.Class, err = classOf(req, i)
	return err
}

// classOf returns the class of the i-th check, "" if it names none.
func classOf(req *weirv1.CheckBatchRequest, i int) (string, *call.Error) {
	place, names := at(req.GetClassIndex(), i, 0), req.GetClass()
	switch {
	case int64(place) < int64(len(names)):
		return names[place], nil
	case place == 0:
		return "", nil
	}
	return "", outside("class", place, len(names))
}

// outside is the error of an index that is not in the list of names.
func outside(field string, place uint32, names int) *call.Error {
	return call.Invalid(`"%[1]s_index" is %[2]d, and %[1]q has %[3]d entries, counted from 0`, field, place, names)
}

// fillKeys sets the attributes of the checks, in one allocation. An empty value means that the
// attribute is missing.
func fillKeys(items []ruleset.Item, columns []*weirv1.KeyColumn) {
	if len(columns) == 0 {
		return
	}
	all := make([]ruleset.Attribute, 0, len(items)*len(columns))
	for i := range items {
		first := len(all)
		for _, column := range columns {
			if value := at(column.GetKey(), i, ""); value != "" {
				all = append(all, attribute(column.GetName(), value))
			}
		}
		items[i].Query.Keys = all[first:len(all):len(all)]
	}
}

// fillCosts sets the costs of the checks, whose rules are known. A cost of 0 in a unit that the
// check's policy does not count is left out.
func fillCosts(items []ruleset.Item, columns []*weirv1.CostColumn) {
	if len(columns) == 0 {
		return
	}
	all := make([]ruleset.Cost, 0, len(items)*len(columns))
	for i := range items {
		first := len(all)
		for _, column := range columns {
			if amount := at(column.GetCost(), i, 0); amount != 0 || items[i].Rule.Counts(column.GetUnit()) {
				all = append(all, ruleset.Cost{Unit: column.GetUnit(), Amount: amount})
			}
		}
		items[i].Query.Costs = all[first:len(all):len(all)]
	}
}

// findRules sets the rules of the checks. Each policy is looked up once.
func findRules(c call.Caller, items []ruleset.Item, req *weirv1.CheckBatchRequest) (err *call.Error) {
	names := req.GetPolicy()
	rules := make([]*ruleset.Rule, len(names))
	for i := range items {
		place := at(req.GetPolicyIndex(), i, 0)
		if int64(place) >= int64(len(names)) {
			return outside("policy", place, len(names)).In(i)
		}
		if rules[place] == nil {
			if rules[place], err = c.Rule([]byte(names[place])); err != nil {
				return err.In(i)
			}
		}
		items[i].Rule = rules[place]
	}
	return nil
}

// batchResponse converts verdicts to columns. There are no delays: checks of a batch do not wait.
func batchResponse(verdicts []ruleset.Verdict) *weirv1.CheckBatchResponse {
	n := len(verdicts)
	numbers, places := make([]int64, 4*n), make([]uint32, 2*n)
	out := &weirv1.CheckBatchResponse{
		Allowed:        make([]bool, n),
		Limit:          numbers[0*n : 1*n : 1*n],
		Remaining:      numbers[1*n : 2*n : 2*n],
		RetryAfterMs:   numbers[2*n : 3*n : 3*n],
		ResetAfterMs:   numbers[3*n : 4*n : 4*n],
		LimitedByIndex: places[:n:n],
		ReasonIndex:    places[n:],
	}
	var limits, reasons words
	for i := range verdicts {
		v := &verdicts[i]
		out.Allowed[i] = v.Allowed
		out.Limit[i], out.Remaining[i] = v.Decision.Limit, v.Remaining
		out.RetryAfterMs[i], out.ResetAfterMs[i] = v.RetryMillis(), ruleset.Millis(v.ResetAfter)
		out.LimitedByIndex[i], out.ReasonIndex[i] = limits.place(v.LimitedBy()), reasons.place(v.Reason.String())
	}
	out.LimitedBy, out.Reason = limits.list, reasons.list
	out.Limit, out.Remaining = unlessZero(out.Limit), unlessZero(out.Remaining)
	out.RetryAfterMs, out.ResetAfterMs = unlessZero(out.RetryAfterMs), unlessZero(out.ResetAfterMs)
	out.LimitedByIndex, out.ReasonIndex = unlessZero(out.LimitedByIndex), unlessZero(out.ReasonIndex)
	return out
}

// unlessZero returns a column, nil if all its values are 0.
func unlessZero[T int64 | uint32](column []T) []T {
	if slices.ContainsFunc(column, func(n T) bool { return n != 0 }) {
		return column
	}
	return nil
}

// words are the distinct texts, in the order of their first occurrence.
type words struct {
	list   []string
	places map[string]uint32
	last   int // the index of the last text that was added or found
}

// place returns the index of a text in the list. A new text is appended.
func (w *words) place(word string) uint32 {
	if w.last < len(w.list) && w.list[w.last] == word { // mostly
		return uint32(w.last)
	}
	if place, ok := w.places[word]; ok {
		w.last = int(place)
		return place
	}
	if w.places == nil {
		w.places = map[string]uint32{}
	}
	place := uint32(len(w.list)) // at most call.MaxChecks
	w.list, w.places[word], w.last = append(w.list, word), place, int(place)
	return place
}
