package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/golden"
)

// Beside each file of testdata/alchemy is what becomes of it: ours and the notes, or the problems. What is
// ours means what budget.FromEnv says (S1.23, S1.24, F1.20).
func TestImportAlchemy(t *testing.T) {
	names, err := filepath.Glob("testdata/alchemy/*.env")
	if err != nil || len(names) < 4 {
		t.Fatal(len(names), err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".env"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			environ := environOf(string(data))
			var b strings.Builder
			ours, notes, err := ImportAlchemy(filepath.Base(name), data, environ)
			if err != nil {
				fmt.Fprintln(&b, err)
			}
			b.Write(ours)
			for _, n := range notes {
				fmt.Fprintln(&b, "#", n)
			}
			if strings.Contains(b.String(), "CANARY") {
				t.Errorf("a secret is shown:\n%s", b.String())
			}
			golden.Check(t, strings.TrimSuffix(name, ".env")+".golden", []byte(b.String()))
			if err == nil {
				checkAlchemy(t, ours, append(strings.Split(string(data), "\n"), environ...))
			}
		})
	}
}

// checkAlchemy compares a configuration with that of the variables.
func checkAlchemy(t *testing.T, ours []byte, environ []string) {
	t.Helper()
	var addresses []string
	for i, m := range someVariable.FindAllString(string(ours), -1) {
		addresses = append(addresses, fmt.Sprintf("%s=https://rpc%d.example.org", strings.Trim(m, "${}"), i))
	}
	c, err := Parse("ours.yaml", ours, addresses, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := budget.FromEnv(environ)
	if err != nil {
		t.Fatal(err)
	}
	got := c.Live().Budgets[0]
	want.Name = got.Name // of several accounts, each has its own
	for what, of := range map[string]func(budget.Config) any{
		"policy": func(c budget.Config) any { p, err := c.Policy(); return fmt.Sprintf("%+v %v", p, err) },
		"costs": func(c budget.Config) any {
			known, _ := c.Costs.Cost("eth_getLogs")
			unknown, _ := c.Costs.Cost("eth_madeUp")
			return fmt.Sprint(known, unknown)
		},
		"thresholds": func(c budget.Config) any { return [2]int{*c.Thresholds.Warning, *c.Thresholds.Pause} },
	} {
		if !reflect.DeepEqual(of(got), of(want)) {
			t.Errorf("%s:\n%v\nwant\n%v", what, of(got), of(want))
		}
	}
}
