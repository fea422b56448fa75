//go:build linux

package integrations

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/store/memstore"
)

// budgetProgram shares a budget by the HTTP API.
var budgetProgram = program{interpreter: "python3", file: "budget-python.py"}

// A waiter is a store whose clock advances only while a refused reservation waits. It can be set to fail first.
type waiter struct {
	weir.Limiter
	clock    clock
	failures map[weir.Op]*atomic.Int64 // that are to come
	refused  atomic.Int64              // when, as Unix time in ns
	waited   atomic.Int64              // from then to the next reservation
}

func newWaiter(reservations, settlements int64) *waiter {
	w := &waiter{failures: map[weir.Op]*atomic.Int64{weir.ReserveAll: {}, weir.Settle: {}}}
	w.failures[weir.ReserveAll].Store(reservations)
	w.failures[weir.Settle].Store(settlements)
	w.Limiter = weir.Must(memstore.New(memstore.Config{Now: w.clock.now}))
	return w
}

func (w *waiter) Do(ctx context.Context, b *weir.Batch) error {
	if n := w.failures[b.Op]; n != nil && n.Add(-1) >= 0 {
		return errors.New("the store is unavailable")
	}
	err := w.Limiter.Do(ctx, b)
	if err != nil || b.Op != weir.ReserveAll {
		return err
	}
	if at := w.refused.Swap(0); at != 0 {
		w.waited.Store(time.Now().UnixNano() - at)
	}
	for i := range b.Decisions {
		if d := &b.Decisions[i]; !d.Allowed && d.RetryAfter > 0 {
			w.refused.Store(time.Now().UnixNano())
			w.clock.past.Add(int64(d.RetryAfter))
		}
	}
	return nil
}

// noLevels keeps the levels of the budget from deciding: they are averages over real time.
const noLevels = "WEIR__BUDGETS__PROVIDER__THRESHOLDS={warning: off, pause: off, critical: off}"

const budgetStory = `call 1: realtime, done, 0 units given back
call 2: backfill, done, 0 units given back
call 3: refused, waiting 700 ms
call 3: backfill, done, 0 units given back
call 4: realtime, done, 0 units given back
call 5: realtime, done, 25 units given back
call 6: realtime, not sent, 26 units given back
`

// The program runs as it is, while the store fails when it reserves and when it commits. Each call is charged once,
// with what it has used.
func TestBudgetProgram(t *testing.T) {
	t.Parallel()
	store := newWaiter(2, 1)
	http := serve(t, store, "budget.yaml", noLevels).HTTP.String()
	out, stderr, code := budgetProgram.run(t, http)
	const noDecision = "call 1: no decision, backing off\n"
	if diff := cmp.Diff(strings.Repeat(noDecision, 3)+budgetStory, out); diff != "" || code != 0 || stderr != "" {
		t.Fatalf("code %d, %q, (-want +got):\n%s", code, stderr, diff)
	}
	if waited := time.Duration(store.waited.Load()); waited < 700*time.Millisecond {
		t.Errorf("Retry-After is 700 ms, and it waited %v", waited)
	}
	want := budget.Ledger{Granted: 20 + 70 + 60 + 60 + 40 + 26, Used: 20 + 70 + 60 + 60 + 15, Returned: 25 + 26}
	if got := ledger(t, http); got != want {
		t.Errorf("ledger %+v, want %+v", got, want)
	}
}

// ledger returns what was counted in cu.
func ledger(t *testing.T, address string) budget.Ledger {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + address + "/admin/v1/budgets/provider")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	var u budget.Usage
	if err != nil || json.Unmarshal(body, &u) != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return u.Ledgers["cu"]
}

// Where waiting or trying again cannot help, the program says so and ends.
func TestBudgetProgramGivesUp(t *testing.T) {
	t.Parallel()
	const token = "alice-0123456789abcdef0123456789abcdef"
	for _, tt := range []struct {
		name, variable, want string
	}{
		{"too costly", "WEIR__BUDGETS__PROVIDER__LIMITS__0__BURST=30", "call 1: refused, and waiting cannot help\n"},
		{"no token", "WEIR__CLIENTS__ALICE__TOKEN=" + token, "/v1/reserve: missing client token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out, stderr, code := budgetProgram.run(t, serve(t, newWaiter(0, 0), "budget.yaml", noLevels, tt.variable).HTTP.String())
			if out != "" || code != 1 || !strings.HasPrefix(stderr, tt.want) || strings.Contains(stderr, "Traceback") {
				t.Errorf("code %d, %q, %q", code, out, stderr)
			}
		})
	}
}

// Without a daemon the program ends after five pauses.
func TestBudgetProgramWithoutWeir(t *testing.T) {
	t.Parallel()
	out, stderr, code := budgetProgram.run(t, refusing(t))
	if want := strings.Repeat("call 1: no decision, backing off\n", 5); out != want || code == 0 || !strings.Contains(stderr, "NoDecision") {
		t.Errorf("code %d, %q, %q", code, out, stderr)
	}
}

// The README has the program, and its output.
func TestReadmeOfBudget(t *testing.T) {
	t.Parallel()
	text := readFile(t, "README.md")
	if !strings.Contains(text, "]("+budgetProgram.file+")") || !strings.Contains(text, "```\n"+budgetStory+"```\n") {
		t.Errorf("the README does not show %s and\n%s", budgetProgram.file, budgetStory)
	}
}
