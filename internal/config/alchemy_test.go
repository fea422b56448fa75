package config

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
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
				plain := quotesAndComments.ReplaceAllString(string(data), "")
				checkAlchemy(t, ours, append(strings.Split(plain, "\n"), environ...))
			}
		})
	}
}

var quotesAndComments = regexp.MustCompile(`["']|(?m:[ \t]+#.*$)`)

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
	if len(c.Live().Budgets) == 0 {
		return // the addresses are of no account that has one
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

// The commands that the result has as comments, run by bash, set the variables that the routes refer to.
func TestImportAlchemyCommands(t *testing.T) {
	bash, err := exec.LookPath("bash") // as the scripts of make test need
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	data := "ETHEREUM_RPC_URLS='https://eth.example.org/1?a=1&b=2,, https://eth.example.org/3'\nBASE_RPC_PRIMARY=https://base.example.org/1 # ours\n"
	for _, name := range []string{"worker.env", "it's ours.env"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		ours, notes, err := ImportAlchemy(name, []byte(data), nil)
		if err != nil || len(notes) > 0 {
			t.Fatal(notes, err)
		}
		var script strings.Builder
		for line := range strings.Lines(string(ours)) {
			if command, ok := strings.CutPrefix(line, "#   "); ok {
				script.WriteString(command)
			}
		}
		script.WriteString("env")
		cmd := exec.CommandContext(t.Context(), bash, "-c", script.String())
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", &script, err)
		}
		for _, want := range []string{
			"ETHEREUM_RPC_1=https://eth.example.org/1?a=1&b=2\n", "ETHEREUM_RPC_3=https://eth.example.org/3\n",
			"BASE_RPC_PRIMARY=https://base.example.org/1\n",
		} {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: %s is not set by\n%s", name, want, &script)
			}
		}
	}
}

// Without the file's name, as from standard input, the advice has a placeholder; without a file, it has nothing to read.
// A value that bash would cut off is noted.
func TestImportAlchemySource(t *testing.T) {
	for _, c := range []struct{ name, file, environ, want, note string }{
		{Stdin, "BASE_RPC_PRIMARY=https://base.example.org", "", "#   set -a; . ./FILE; set +a\n", ""},
		{"conf/worker.env", "BASE_RPC_PRIMARY=https://base.example.org", "", "#   set -a; . conf/worker.env; set +a\n", ""},
		{"the environment", "", "BASE_RPC_PRIMARY=https://base.example.org", "the environment.\n# strategy", ""},
		{"the environment", "", "BASE_RPC_URLS=https://base.example.org", "in bash:\n#   IFS=', ' read -r BASE_RPC_1 _ ", ""},
		{"worker.env", "BASE_RPC_URLS=https://base.example.org/1, https://base.example.org/2", "", "BASE_RPC_2", "worker.env:1: BASE_RPC_URLS: has no quotes"},
	} {
		ours, notes, err := ImportAlchemy(c.name, []byte(c.file), []string{c.environ})
		if err != nil || !strings.Contains(string(ours), c.want) || !strings.Contains(fmt.Sprint(notes), c.note) || (len(notes) > 0) != (c.note != "") {
			t.Errorf("%+v: %s, notes %v, %v", c, ours, notes, err)
		}
	}
}

// A budget whose requests without a class can never send transactions can with the burst that the note names.
func TestImportAlchemyTransactions(t *testing.T) {
	for _, rate := range []int{25, 100, 330, 499, 500, 624, 625, 1000} {
		ours, notes, err := ImportAlchemy("worker.env", fmt.Appendf(nil, "ALCHEMY_CU_PER_SECOND=%d", rate), nil)
		if err != nil {
			t.Fatal(err)
		}
		burst := 0
		for _, n := range notes {
			if _, after, ok := strings.Cut(n.Text, "raise burst to "); ok {
				_, _ = fmt.Sscan(after, &burst)
			}
		}
		if got := canSend(t, ours); got != (burst == 0) {
			t.Errorf("rate %d: without a class it can be sent: %v; notes %v", rate, got, notes)
		}
		if burst > 0 && !canSend(t, someBurst.ReplaceAll(ours, fmt.Appendf(nil, "burst: %d", burst))) {
			t.Errorf("rate %d: burst %d is not enough", rate, burst)
		}
	}
}

var someBurst = regexp.MustCompile(`burst: \d+`)

// canSend reports whether a request without a class can ever send a transaction under the budget of a configuration.
func canSend(t *testing.T, config []byte) bool {
	t.Helper()
	c, err := Parse("ours.yaml", config, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Live().Budgets[0].Policy()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range p.Limits {
		has, err := weir.NewPolicy("x", l.Limit)
		if err != nil {
			t.Fatal(err)
		}
		if has.Capacity() < 250 {
			return false
		}
	}
	return true
}
