package budget

import (
	"embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/internal/jsonrpc"
)

// Amounts is how much of each unit something costs, for example {"cu": 40, "throughput": 250}. Amounts are
// never negative. A unit that is not in it costs nothing.
type Amounts map[string]int64

// MaxAmount is the most that one method or batch may cost of a unit: no charge can have more.
const MaxAmount = weir.MaxCost

// ErrUnknownMethod is wrapped by the error for a method that a table neither lists nor has a default for.
var ErrUnknownMethod = errors.New("budget: unknown method")

// AnyMethod is the name under which a table has the cost of every method that it does not list. With it no
// method is unknown.
const AnyMethod = "*"

// Unknown is what a table does about methods that it does not list. Either way it counts them. A call of
// such a method is never free or 1 by accident: the default has to be said for each unit.
type Unknown struct {
	Refuse  bool    // their cost is an error that wraps ErrUnknownMethod
	Default Amounts // otherwise this is their cost; all units of the table
}

// Overrides are changes to a table, for example for a contract with other prices.
type Overrides struct {
	// Methods are new costs. Of a method that the table lists, units left out keep their amount; of
	// another, all units must be there.
	Methods map[string]Amounts

	// Unknown replaces the policy for methods that are not listed. The default is the table's own.
	Unknown *Unknown
}

// TableInfo says where the numbers of a table come from.
type TableInfo struct {
	Name    string     // for example "alchemy"
	Version int        // higher for newer numbers
	Date    string     // when the source was read, for example "2026-11-18"
	Source  string     // for example the address of the vendor's page
	Units   []UnitInfo // by name
}

// UnitInfo describes a unit.
type UnitInfo struct {
	Name        string // for example "cu"
	Description string // for example "compute units as they are billed"
}

// Table is what the methods of a vendor cost, in one or more units, and by which rules the vendor counts:
//
//   - the members of a batch are summed up, and some vendors add the batch itself,
//   - requests that fail are counted, or are free,
//   - methods that are not listed have a default or are refused.
//
// Make one with BuiltinTable or ParseTable and change it with With. A table is safe for concurrent use, and
// its costs never change; only the counters of unknown methods do.
type Table struct {
	info       TableInfo
	methods    map[string]Amounts
	unknown    Unknown
	batch      Amounts // charged for a batch besides its members; nil for none
	failedFree bool

	mu             sync.Mutex // guards the fields below
	unknownCalls   int64
	unknownMethods map[string]int64
}

//go:embed costs/*.json
var tableFiles embed.FS

// BuiltinTable returns a table that comes with the package: "alchemy", or "generic", in which every method
// costs 1 of the unit "requests".
func BuiltinTable(name string) (*Table, error) {
	names := builtinTables()
	if !slices.Contains(names, name) {
		return nil, fmt.Errorf("budget: no cost table is called %q: use one of %s", name, strings.Join(names, ", "))
	}
	data, err := tableFiles.ReadFile("costs/" + name + ".json")
	if err != nil {
		return nil, fmt.Errorf("budget: cost table %q: %w", name, err)
	}
	return ParseTable(data)
}

func builtinTables() []string {
	files, _ := tableFiles.ReadDir("costs") // embedded: it is always there
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = strings.TrimSuffix(f.Name(), ".json")
	}
	return names
}

// Info says where the numbers come from.
func (t *Table) Info() TableInfo {
	info := t.info
	info.Units = slices.Clone(info.Units)
	return info
}

// Unknown says what the table does about methods that it does not list.
func (t *Table) Unknown() Unknown {
	return Unknown{Refuse: t.unknown.Refuse, Default: maps.Clone(t.unknown.Default)}
}

// counts reports whether a table has a unit; nil has none.
func (t *Table) counts(unit string) bool {
	return t != nil && slices.ContainsFunc(t.info.Units, func(u UnitInfo) bool { return u.Name == unit })
}

// With returns a table with changes. Its counters start at 0. The error says of each problem where in the
// overrides it is.
func (t *Table) With(o Overrides) (*Table, error) {
	changed := &Table{info: t.info, methods: maps.Clone(t.methods), unknown: t.unknown, batch: t.batch, failedFree: t.failedFree}
	var found problems
	for _, method := range slices.Sorted(maps.Keys(o.Methods)) {
		cost := t.methods[method].clone()
		maps.Copy(cost, o.Methods[method])
		changed.methods[method] = cost
		found.checkMethod(method, "Methods")
		found.checkAmounts(cost, t.info.Units, "Methods", method)
	}
	if o.Unknown != nil {
		changed.unknown = Unknown{Refuse: o.Unknown.Refuse, Default: o.Unknown.Default.clone()}
		changed.checkUnknown(&found)
	}
	if err := found.err(); err != nil {
		return nil, err
	}
	return changed, nil
}

func (t *Table) checkUnknown(found *problems) {
	_, all := t.methods[AnyMethod]
	switch {
	case all:
		found.add(nil, "the table has a cost for "+AnyMethod+", so no method is unknown: change that instead", "Unknown")
	case t.unknown.Refuse && len(t.unknown.Default) > 0:
		found.add(nil, "a default is not used if unknown methods are refused: leave out one of the two", "Unknown")
	case !t.unknown.Refuse:
		found.checkAmounts(t.unknown.Default, t.info.Units, "Unknown", "Default")
	}
}

// Cost returns what a call of a method costs: all units of the table, also those of which it costs 0. The
// names of methods are case-sensitive.
func (t *Table) Cost(method string) (Amounts, error) {
	cost, err := t.cost(method, nil)
	if err != nil {
		return nil, err
	}
	return cost.clone(), nil
}

// A noticeFunc is called when a table counts the first call of an unknown method whose name it remembers.
type noticeFunc func(t *Table, method string)

// cost is Cost without the copy: the caller must not change the result. Notice may be nil.
func (t *Table) cost(method string, notice noticeFunc) (Amounts, error) {
	if cost, listed := t.methods[method]; listed {
		return cost, nil
	}
	if cost, any := t.methods[AnyMethod]; any {
		return cost, nil
	}
	if name, first := t.countUnknown(method); first && notice != nil {
		notice(t, name)
	}
	if t.unknown.Refuse {
		return nil, fmt.Errorf("%w %q: add its cost to table %q or give the table a default", ErrUnknownMethod, shorten(method), t.info.Name)
	}
	return t.unknown.Default, nil
}

// Batch returns what a batch of calls costs by the vendor's rule: the sum of its members, at some vendors
// plus an amount for the batch itself. If a member is refused there is no cost.
func (t *Table) Batch(methods []string) (Amounts, error) { return t.batchCost(methods, nil) }

func (t *Table) batchCost(methods []string, notice noticeFunc) (Amounts, error) {
	if len(methods) == 0 {
		return nil, errors.New("budget: an empty batch has no cost")
	}
	sum := t.nothing()
	sum.add(t.batch)
	for i, method := range methods {
		cost, err := t.cost(method, notice)
		if err != nil {
			return nil, fmt.Errorf("call %d of the batch: %w", i, err)
		}
		if !sum.add(cost) {
			return nil, fmt.Errorf("budget: the cost of a batch of %d calls is too large for one charge: send fewer at once", len(methods))
		}
	}
	return sum, nil
}

// nothing returns 0 of each unit.
func (t *Table) nothing() Amounts {
	none := make(Amounts, len(t.info.Units))
	for _, u := range t.info.Units {
		none[u.Name] = 0
	}
	return none
}

// The bounds of the memory for unknown methods.
const (
	maxUnknownMethods = 100
	maxUnknownName    = 100 // bytes
)

// UnknownCalls returns how many calls of unknown methods the table was asked for, refused ones included.
func (t *Table) UnknownCalls() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unknownCalls
}

// UnknownMethods returns the calls of unknown methods by name. Only the first 100 names are remembered, and
// the first 100 bytes of each; UnknownCalls counts the others too.
func (t *Table) UnknownMethods() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.unknownMethods)
}

// countUnknown counts a call of an unknown method. It returns the name under which the method is remembered, and
// whether this is the first call of that name.
func (t *Table) countUnknown(method string) (name string, first bool) {
	name = shorten(method)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unknownCalls++
	if _, known := t.unknownMethods[name]; !known {
		if len(t.unknownMethods) >= maxUnknownMethods {
			return name, false
		}
		if t.unknownMethods == nil {
			t.unknownMethods = make(map[string]int64)
		}
		name, first = strings.Clone(name), true // a part would keep the whole request
	}
	t.unknownMethods[name]++
	return name, first
}

// keepCounts takes over the counts of a table that this one replaces, of methods that are still unknown, as far
// as there is room for their names.
func (t *Table) keepCounts(old *Table) {
	calls, methods := old.UnknownCalls(), old.UnknownMethods()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unknownCalls = max(t.unknownCalls, calls)
	for name, n := range methods {
		if _, listed := t.methods[name]; listed || n <= t.unknownMethods[name] {
			continue
		}
		if _, known := t.unknownMethods[name]; !known && len(t.unknownMethods) >= maxUnknownMethods {
			continue
		}
		if t.unknownMethods == nil {
			t.unknownMethods = make(map[string]int64)
		}
		t.unknownMethods[name] = n
	}
}

// shorten cuts a name that came from outside.
func shorten(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), maxUnknownName)], "�")
}

// clone returns a copy that is not nil.
func (a Amounts) clone() Amounts {
	c := make(Amounts, len(a))
	maps.Copy(c, a)
	return c
}

// add adds b. It returns false, with a in between, if an amount is above MaxAmount then.
func (a Amounts) add(b Amounts) bool {
	for unit, n := range b {
		if n > MaxAmount-a[unit] {
			return false
		}
		a[unit] += n
	}
	return true
}

// problems collects what is wrong with a table or with overrides.
type problems struct{ list []error }

// maxProblems is how many are listed: who wrote a unit wrong wrote it wrong in each method.
const maxProblems = 20

func (p *problems) add(value any, problem string, path ...any) {
	if len(p.list) < maxProblems {
		p.list = append(p.list, &fielderr.Error{Package: "budget", Path: slices.Clone(path), Value: value, Problem: problem})
	}
}

func (p *problems) err() error { return errors.Join(p.list...) }

func (p *problems) checkMethod(method string, path ...any) {
	if method == "" || len(method) > jsonrpc.MaxMethod {
		p.add(nil, fmt.Sprintf("the name of a method has 1 to %d bytes", jsonrpc.MaxMethod), append(path, shorten(method))...)
	}
}

// checkAmounts wants an amount of every unit, so that nothing is free because it was forgotten.
func (p *problems) checkAmounts(a Amounts, units []UnitInfo, path ...any) {
	known := make([]string, len(units))
	for i, u := range units {
		known[i] = u.Name
		if _, ok := a[u.Name]; !ok {
			p.add(nil, "is missing: write 0 if it costs nothing", append(path, u.Name)...)
		}
	}
	for _, unit := range slices.Sorted(maps.Keys(a)) {
		switch n := a[unit]; {
		case !slices.Contains(known, unit):
			p.add(nil, "unknown unit: the table has "+strings.Join(known, ", "), append(path, unit)...)
		case n < 0:
			p.add(n, "must not be negative", append(path, unit)...)
		case n > MaxAmount:
			p.add(n, fmt.Sprintf("must be at most %d, the greatest cost of one charge", MaxAmount), append(path, unit)...)
		}
	}
}
