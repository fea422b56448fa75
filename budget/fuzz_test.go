package budget

import (
	"testing"
)

// FuzzParseTable wants that a table that is accepted has a cost of every unit for whatever it lists.
func FuzzParseTable(f *testing.F) {
	f.Add([]byte(testTable), "m")
	f.Add([]byte(`{"methods":{"*":{"a":1}},"units":{"a":"x"}}`), "*")
	f.Add([]byte(`{"name":[{"a":1e3}]}`), "")
	f.Fuzz(func(t *testing.T, data []byte, method string) {
		table, err := ParseTable(data)
		if err != nil {
			return
		}
		cost, err := table.Cost(method)
		if err != nil {
			return
		}
		units := table.Info().Units
		if len(cost) != len(units) {
			t.Fatalf("cost %v with units %v", cost, units)
		}
		for _, u := range units {
			if n, ok := cost[u.Name]; !ok || n < 0 || n > MaxAmount {
				t.Errorf("%d of unit %q", n, u.Name)
			}
		}
	})
}
