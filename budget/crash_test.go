package budget_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/redistest"
)

// redisOfWorker in the environment makes TestCrashedProcess a worker that waits for its end. It is the address of Redis.
const redisOfWorker = "WEIR_TEST_CRASH_REDIS"

// What the worker uses and holds, and the whole budget.
const (
	usedByWorker, heldByWorker = 30, 20*10 + 20*5
	wholeBudget                = 1000
)

// TestCrashedProcess: reservations of a process that is killed count as used when they expire, to the unit. The ledger of
// another process closes, and it gets all the rest.
func TestCrashedProcess(t *testing.T) {
	if address := os.Getenv(redisOfWorker); address != "" {
		holdUntilKilled(t, address)
		return
	}
	redis := redistest.Start(t)
	account := weir.Must(budget.New(openStore(t, redis), slow(wholeBudget)))
	realtime := weir.Must(account.Controller("realtime"))
	kill := startWorker(t, redis.Addr())
	own := weir.Must(realtime.Reserve(t.Context(), time.Minute, budget.Units(100)))
	wantUsed(t, account, usedByWorker+heldByWorker+100)
	kill()
	weir.Must(own.Settle(t.Context(), budget.Units(60)))
	wantUsed(t, account, usedByWorker+heldByWorker+60)

	for weir.Must(realtime.Try(t.Context(), budget.Units(600))).Held { // until no reservation is open
		time.Sleep(10 * time.Millisecond)
	}
	wantUsed(t, account, usedByWorker+heldByWorker+60)
	const left = wholeBudget - usedByWorker - heldByWorker - 60
	for _, class := range account.Classes() {
		c := weir.Must(account.Controller(class))
		for weir.Must(c.Try(t.Context(), budget.Units(1))).Allowed {
		}
	}
	if l, want := ledgerOf(t, account), (budget.Ledger{Granted: 100 + left, Used: 60 + left, Returned: 40}); l != want {
		t.Errorf("the ledger is %+v, want %+v", l, want)
	}
	wantUsed(t, account, wholeBudget)
}

// wantUsed compares what is used of each limit, by all processes.
func wantUsed(t *testing.T, a *budget.Account, want int64) {
	t.Helper()
	for _, h := range weir.Must(a.Usage(t.Context())).Horizons {
		if h.Used != want {
			t.Errorf("%d units are used of %q, want %d", h.Used, h.Limit, want)
		}
	}
}

// startWorker starts a worker process, waits until it has made its reservations, and returns a function that kills it.
func startWorker(t *testing.T, address string) (kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), weir.Must(os.Executable()), "-test.run=^TestCrashedProcess$")
	cmd.Env = append(os.Environ(), redisOfWorker+"="+address)
	cmd.Stderr = os.Stderr
	weir.Must(cmd.StdinPipe()) // the worker ends with this process
	out := bufio.NewReader(weir.Must(cmd.StdoutPipe()))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := out.ReadString('\n'); line != "held\n" {
		t.Fatalf("the worker says %q, %v", line, err)
	}
	return func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // the error says that it was killed
	}
}

// holdUntilKilled is the worker: it uses 30 units, holds 200 for realtime and 100 for backfill, and ends only if nobody
// reads its output any more.
func holdUntilKilled(t *testing.T, address string) {
	account := weir.Must(budget.New(openStoreAt(t, address), slow(wholeBudget)))
	realtime, backfill := weir.Must(account.Controller("realtime")), weir.Must(account.Controller("backfill"))
	used := weir.Must(realtime.Reserve(t.Context(), time.Minute, budget.Units(50)))
	weir.Must(used.Settle(t.Context(), budget.Units(usedByWorker)))
	const ttl = 2 * time.Second
	for range 20 {
		weir.Must(realtime.Reserve(t.Context(), ttl, budget.Units(10)))
		weir.Must(backfill.Reserve(t.Context(), ttl, budget.Units(5)))
	}
	if l := ledgerOf(t, account); l.Used != usedByWorker || l.Open+l.Expired != heldByWorker {
		t.Errorf("the ledger of the worker is %+v", l)
		return
	}
	fmt.Println("held")
	_, _ = io.Copy(io.Discard, os.Stdin)
}
