package budget

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The bounds of a table's file.
const (
	maxTableSize = 1 << 20 // bytes
	maxUnits     = 16
	maxFileDepth = 8
)

var unitName = regexp.MustCompile(`^[a-z0-9._-]{1,64}$`)

// ParseTable reads a table from its JSON file:
//
//	{
//	  "name": "example",
//	  "version": 1,
//	  "date": "2026-11-18",                        when the source was read
//	  "source": "https://…",
//	  "units": {"credits": "what a day's quota counts"},
//	  "batch": {"sum_plus": {"credits": 5}},       or "sum"
//	  "failed_requests": "counted",                or "free"
//	  "unknown": "refuse",                         or an amount of each unit
//	  "methods": {"eth_call": {"credits": 80}}
//	}
//
// A method has an amount of every unit. The method "*" stands for all that are not listed; such a table has
// no "unknown".
//
// The amounts of a method are what is reserved when a request is sent. If the request fails, with a status of 400 or
// more, a Transport gives them back where "failed_requests" is "free". A cost that is known only afterwards, such as
// the tokens of an answer, is not in a table: reserve the most that it can be, and settle what was used, with
// Transport.Settle or Controller.Reserve.
//
// The file is read strictly: the error names each field that is unknown, missing, there twice
// or wrong.
func ParseTable(data []byte) (*Table, error) {
	if len(data) > maxTableSize {
		return nil, fmt.Errorf("budget: a cost table has at most %d bytes, not %d", maxTableSize, len(data))
	}
	root, err := readObject(data)
	if err != nil {
		return nil, fmt.Errorf("budget: cost table: %w", err)
	}
	var r tableReader
	t := r.table(root)
	if err := r.err(); err != nil {
		return nil, err
	}
	return t, nil
}

// tableReader turns JSON values into the parts of a table, and collects what is wrong with them.
type tableReader struct{ problems }

var tableFields = []string{"name", "version", "date", "source", "units", "batch", "failed_requests", "unknown", "methods"}

func (r *tableReader) table(root object) *Table {
	for _, m := range root {
		if !slices.Contains(tableFields, m.name) {
			r.add(nil, "unknown field: a table has "+strings.Join(tableFields, ", "), m.name)
		}
	}
	t := &Table{info: TableInfo{
		Name:    r.text(root.get("name"), "name"),
		Version: r.version(root.get("version")),
		Date:    r.date(root.get("date")),
		Source:  r.text(root.get("source"), "source"),
		Units:   r.units(root.get("units")),
	}}
	if len(t.info.Units) == 0 {
		return t // every amount would be of an unknown unit
	}
	t.batch = r.batch(root.get("batch"), t.info.Units)
	t.failedFree = r.choice(root.get("failed_requests"), "counted", "free", "failed_requests")
	t.methods = r.methods(root.get("methods"), t.info.Units)
	t.unknown = r.unknown(root.get("unknown"), t)
	return t
}

func (r *tableReader) text(v any, path ...any) string {
	s, _ := v.(string)
	if s == "" {
		r.add(nil, "must be a text that is not empty", path...)
	}
	return s
}

// choice reads one of two words and returns whether it is the second.
func (r *tableReader) choice(v any, first, second string, path ...any) bool {
	if v != first && v != second {
		r.add(nil, fmt.Sprintf("must be %q or %q", first, second), path...)
	}
	return v == second
}

func (r *tableReader) version(v any) int {
	n, ok := wholeNumber(v)
	if !ok || n < 1 || n > 1_000_000 {
		r.add(nil, "must be a whole number from 1 to 1000000", "version")
	}
	return int(n)
}

func (r *tableReader) date(v any) string {
	s, _ := v.(string)
	if _, err := time.Parse(time.DateOnly, s); err != nil {
		r.add(nil, `must be a date such as "2026-11-18"`, "date")
	}
	return s
}

func (r *tableReader) units(v any) []UnitInfo {
	members, _ := v.(object)
	if len(members) == 0 || len(members) > maxUnits {
		r.add(nil, fmt.Sprintf("must be an object with 1 to %d units and their descriptions", maxUnits), "units")
		return nil
	}
	units := make([]UnitInfo, 0, len(members))
	for _, m := range members {
		if !unitName.MatchString(m.name) {
			r.add(nil, "the name of a unit has 1 to 64 of a-z 0-9 . _ -", "units", shorten(m.name))
		}
		units = append(units, UnitInfo{Name: m.name, Description: r.text(m.value, "units", m.name)})
	}
	slices.SortFunc(units, func(a, b UnitInfo) int { return strings.Compare(a.Name, b.Name) })
	return units
}

func (r *tableReader) batch(v any, units []UnitInfo) Amounts {
	if v == "sum" {
		return nil
	}
	rule, _ := v.(object)
	if len(rule) != 1 || rule[0].name != "sum_plus" {
		r.add(nil, `must be "sum", or {"sum_plus": amounts} if the batch itself costs too`, "batch")
		return nil
	}
	return r.amounts(rule[0].value, units, "batch", "sum_plus")
}

func (r *tableReader) methods(v any, units []UnitInfo) map[string]Amounts {
	members, ok := v.(object)
	if !ok {
		r.add(nil, "must be an object with the costs of each method", "methods")
	}
	costs := make(map[string]Amounts, len(members))
	for _, m := range members {
		r.checkMethod(m.name, "methods")
		costs[m.name] = r.amounts(m.value, units, "methods", shorten(m.name))
	}
	return costs
}

func (r *tableReader) unknown(v any, t *Table) Unknown {
	_, all := t.methods[AnyMethod]
	switch {
	case all && v != nil:
		r.add(nil, `"methods" has a cost for "*", so no method is unknown: leave out one of the two`, "unknown")
	case all:
	case v == "refuse":
		return Unknown{Refuse: true}
	case isObject(v):
		return Unknown{Default: r.amounts(v, t.info.Units, "unknown")}
	default:
		r.add(nil, `must be "refuse" or the amounts that methods cost which are not listed`, "unknown")
	}
	return Unknown{}
}

func (r *tableReader) amounts(v any, units []UnitInfo, path ...any) Amounts {
	members, ok := v.(object)
	if !ok {
		r.add(nil, "must be an object with the amount of each unit", path...)
		return nil
	}
	a := make(Amounts, len(members))
	for _, m := range members {
		n, ok := wholeNumber(m.value)
		if !ok {
			r.add(nil, "must be a whole number", append(path, m.name)...)
		}
		a[m.name] = n
	}
	r.checkAmounts(a, units, path...)
	return a
}

// wholeNumber returns a JSON number that is written in digits.
func wholeNumber(v any) (int64, bool) {
	number, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	n, err := number.Int64()
	return n, err == nil
}

// object is a JSON object: its members in the order of the file, no two of one name.
type object []member

type member struct {
	name  string
	value any // string, json.Number, bool, nil, object or []any
}

func isObject(v any) bool {
	_, ok := v.(object)
	return ok
}

// get returns the value of a member, nil if there is none.
func (o object) get(name string) any {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// readObject reads a text that is one JSON object. encoding/json alone would take the last of two members of
// one name and match names whatever their case.
func readObject(data []byte) (object, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, err := readValue(dec, 0)
	if err != nil {
		return nil, err
	}
	root, ok := v.(object)
	if !ok {
		return nil, errors.New("must be a JSON object")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("at byte %d: nothing may follow the object", dec.InputOffset())
	}
	return root, nil
}

func readValue(dec *json.Decoder, depth int) (any, error) {
	token, err := readToken(dec)
	if err != nil {
		return nil, err
	}
	if depth == maxFileDepth {
		return nil, fmt.Errorf("at byte %d: more than %d objects and arrays inside each other", dec.InputOffset(), maxFileDepth)
	}
	switch token {
	case json.Delim('{'):
		return readMembers(dec, depth)
	case json.Delim('['):
		return readElements(dec, depth)
	}
	return token, nil
}

// readToken reads a token that has to be there.
func readToken(dec *json.Decoder) (json.Token, error) {
	token, err := dec.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("at byte %d: %w", dec.InputOffset(), err)
	}
	return token, nil
}

func readMembers(dec *json.Decoder, depth int) (any, error) {
	o := object{}
	seen := make(map[string]bool)
	for dec.More() {
		name, err := readValue(dec, depth+1)
		if err != nil {
			return nil, err
		}
		text, _ := name.(string) // the decoder admits nothing else there
		if seen[text] {
			return nil, fmt.Errorf("at byte %d: %q is there twice", dec.InputOffset(), shorten(text))
		}
		seen[text] = true
		value, err := readValue(dec, depth+1)
		if err != nil {
			return nil, err
		}
		o = append(o, member{text, value})
	}
	_, err := readToken(dec) // the closing brace
	return o, err
}

func readElements(dec *json.Decoder, depth int) (any, error) {
	a := []any{}
	for dec.More() {
		value, err := readValue(dec, depth+1)
		if err != nil {
			return nil, err
		}
		a = append(a, value)
	}
	_, err := readToken(dec) // the closing bracket
	return a, err
}
