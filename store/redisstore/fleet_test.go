package redisstore

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// nodeVariable in the environment makes this test program a node of a fleet. It has
// its instructions, in JSON.
const nodeVariable = "WEIR_TEST_NODE"

// nodeOrders is what a node does: it opens a store and says "ready". A line on its
// standard input says when to begin, in Unix ns. Then its goroutines take Calls times
// each or, if that is 0, until its standard input ends. It tells how often it was
// admitted.
type nodeOrders struct {
	Addr, Prefix string
	Limit        wireLimit
	Goroutines   int
	Calls        int
}

func runNode() (code int) {
	if err := nodeMain(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func nodeMain() error {
	var orders nodeOrders
	if err := json.Unmarshal([]byte(os.Getenv(nodeVariable)), &orders); err != nil {
		return err
	}
	limit, err := orders.Limit.limit()
	if err != nil {
		return err
	}
	p, err := weir.NewPolicy("p", limit)
	if err != nil {
		return err
	}
	to := server(orders.Addr)
	to.Timeout, to.DialTimeout = 5*time.Second, 5*time.Second // as open has it
	s, err := New(context.Background(), Config{Redis: to, Prefix: orders.Prefix, Timeout: 30 * time.Second})
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := weir.Peek(context.Background(), s, p, "k", 1); err != nil { // connected, and with all scripts
		return err
	}
	fmt.Println("ready")
	stdin := bufio.NewReader(os.Stdin)
	line, err := stdin.ReadString('\n')
	if err != nil {
		return err
	}
	at, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		return err
	}
	for time.Now().UnixNano() < at {
		runtime.Gosched()
	}
	admitted, err := orders.carryOut(s, p, stdin)
	if err == nil {
		fmt.Println(admitted)
	}
	return err
}

func (o nodeOrders) carryOut(s *Store, p *weir.Policy, stdin io.Reader) (int64, error) {
	var (
		admitted atomic.Int64
		ended    atomic.Bool
		failed   atomic.Pointer[error]
		all      sync.WaitGroup
	)
	take := func() {
		d, err := s.Take(context.Background(), p, "k", 1)
		if err != nil {
			failed.Store(&err)
		}
		if d.Allowed {
			admitted.Add(1)
		}
	}
	for range o.Goroutines {
		all.Go(func() {
			for i := 0; (i < o.Calls || o.Calls == 0) && !ended.Load() && failed.Load() == nil; i++ {
				take()
			}
		})
	}
	if o.Calls == 0 {
		_, _ = io.Copy(io.Discard, stdin)
		ended.Store(true)
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return admitted.Load(), nil
}

// A node is another process.
type node struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr strings.Builder
}

// startNode starts a process and waits until it is ready.
func startNode(t *testing.T, o nodeOrders) *node {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, cmd: exec.Command(os.Args[0])}
	n.cmd.Env = append(os.Environ(), nodeVariable+"="+string(text))
	n.cmd.Stderr = &n.stderr
	if n.stdin, err = n.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := n.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	n.stdout = bufio.NewReader(stdout)
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // where the test has not come to its end
		_ = n.cmd.Process.Kill()
		_ = n.cmd.Wait()
	})
	n.line("ready")
	return n
}

// line reads a line, which must be want unless that is "".
func (n *node) line(want string) string {
	n.t.Helper()
	line, err := n.stdout.ReadString('\n')
	line = strings.TrimSuffix(line, "\n")
	if err != nil || want != "" && line != want {
		n.t.Fatalf("a node said %q and %v, and on its standard error: %s", line, err, n.stderr.String())
	}
	return line
}

// begin lets nodes begin at the same moment.
func begin(t *testing.T, nodes ...*node) {
	t.Helper()
	at := time.Now().Add(20 * time.Millisecond).UnixNano()
	for _, n := range nodes {
		if _, err := fmt.Fprintln(n.stdin, at); err != nil {
			t.Fatal(err)
		}
	}
}

func (n *node) stop() { _ = n.stdin.Close() }

func (n *node) admitted() int64 {
	n.t.Helper()
	count, err := strconv.ParseInt(n.line(""), 10, 64)
	if err != nil {
		n.t.Fatal(err)
	}
	return count
}

// wire returns a limit in the JSON form for nodes.
func wire(t *testing.T, l weir.Limit) wireLimit {
	t.Helper()
	list, err := wireLimits(newPolicy(t, "p", l))
	if err != nil {
		t.Fatal(err)
	}
	return list[0]
}

// Two processes share one window: of 1,000 calls at once, exactly 100 are admitted.
func TestFleetSharesAWindow(t *testing.T) {
	redis := redistest.Start(t)
	// The server's clock decides, and this window does not turn before 2050.
	window := weir.Limit{Rate: 100, Per: weir.Every(40 * 365 * 24 * time.Hour), Algorithm: weir.FixedWindow}
	gcra := weir.Limit{Rate: 1, Per: weir.Every(24 * time.Hour), Burst: 100}
	for i, c := range []struct {
		limit             weir.Limit
		goroutines, calls int // of each process
	}{
		{window, 500, 1}, {window, 10, 50}, {gcra, 500, 1}, {gcra, 10, 50},
	} {
		orders := nodeOrders{Addr: redis.Addr(), Prefix: fmt.Sprintf("fleet%d:", i), Limit: wire(t, c.limit), Goroutines: c.goroutines, Calls: c.calls}
		nodes := []*node{startNode(t, orders), startNode(t, orders)}
		begin(t, nodes...)
		first, second := nodes[0].admitted(), nodes[1].admitted()
		t.Logf("%v, 2 × %d × %d calls: %d and %d were admitted", c.limit, c.goroutines, c.calls, first, second)
		if first+second != 100 {
			t.Errorf("%v: 1,000 calls from two processes, each of %d goroutines: %d + %d were admitted, want 100", c.limit, c.goroutines, first, second)
		}
	}
}

// timeOf returns what the server's clock says, in µs.
func timeOf(t *testing.T, redis *redistest.Server) int64 {
	t.Helper()
	r := redis.MustDo("TIME")
	seconds, err1 := strconv.ParseInt(r.Items[0].Text, 10, 64)
	micros, err2 := strconv.ParseInt(r.Items[1].Text, 10, 64)
	if err1 != nil || err2 != nil {
		t.Fatalf("TIME says %v", r)
	}
	return seconds*1_000_000 + micros
}

// A fleet that asks all the time gets the burst and what comes in since, by the
// server's clock: never more, and not 2 units less.
func TestFleetGetsItsRate(t *testing.T) {
	redis := redistest.Start(t)
	const rate, burst = 200, 200
	limit := weir.Limit{Rate: rate, Per: weir.Every(time.Second), Burst: burst}
	orders := nodeOrders{Addr: redis.Addr(), Prefix: "fleet:", Limit: wire(t, limit), Goroutines: 4}
	nodes := []*node{startNode(t, orders), startNode(t, orders)}
	s := open(t, Config{Redis: server(redis.Addr()), Prefix: orders.Prefix})
	p := newPolicy(t, "p", limit)
	admitted := int64(0)
	take := func(cost int64) (remaining int64, ok bool) {
		d, err := s.Take(context.Background(), p, "k", cost)
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			admitted += cost
		}
		return d.Remaining, d.Allowed
	}

	// The first and the last call are this process's, between two looks at the clock.
	// The first takes the burst, so that nothing that comes in is lost.
	begins := timeOf(t, redis)
	take(burst)
	began := timeOf(t, redis)
	begin(t, nodes...)
	for timeOf(t, redis) < began+short64(700_000, 10_000_000) {
		take(1)
	}
	for _, n := range nodes {
		n.stop()
		admitted += n.admitted()
	}
	ends := timeOf(t, redis)
	for remaining, ok := take(1); ok; remaining, ok = take(max(1, remaining)) {
		ends = timeOf(t, redis)
	}
	ended := timeOf(t, redis)

	most := burst + rate*float64(ended-begins)/1e6
	least := burst + rate*float64(ends-began)/1e6 - 2
	t.Logf("%d units in %.3f s: at most %.1f, at least %.1f", admitted, float64(ended-begins)/1e6, most, least)
	if got := float64(admitted); got > math.Floor(most) || got < least {
		t.Errorf("three processes got %d units of %d per second and a burst of %d in %d to %d µs, want %.1f to %.1f",
			admitted, rate, burst, ends-began, ended-begins, least, most)
	}
}

func short64(n, all int64) int64 { return int64(short(int(n), int(all))) }

// Clocks of nodes change nothing, not even where they disagree on the day: the
// server's decides.
func TestFleetWithWrongClocks(t *testing.T) {
	redis := redistest.Start(t)
	var nodes []*Store
	for _, skew := range []time.Duration{0, 5 * time.Second, -5 * time.Second, 50 * time.Hour, -50 * time.Hour} {
		s := open(t, Config{Redis: server(redis.Addr()), Prefix: "skewed:"})
		s.skew = skew
		nodes = append(nodes, s)
	}
	const day = 24 * time.Hour
	t.Run("gcra", func(t *testing.T) {
		p := newPolicy(t, "gcra", weir.Limit{Rate: 10, Per: weir.Every(day)})
		began := timeOf(t, redis)
		takeInTurns(t, redis, nodes, p, func(call int, sent, received int64) (least, most int64) {
			full := min(10, int64(call)+1) * day.Microseconds() / 10
			return full - (received - began), full
		})
	})
	t.Run("log", func(t *testing.T) {
		p := newPolicy(t, "log", weir.Limit{Rate: 10, Per: weir.Every(day), Algorithm: weir.SlidingLog})
		began := timeOf(t, redis)
		takeInTurns(t, redis, nodes, p, func(_ int, sent, received int64) (least, most int64) {
			return day.Microseconds() - (received - began), day.Microseconds()
		})
	})
	for name, in := range map[string]time.Duration{"midnight ahead": 4 * time.Second, "midnight behind": -2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			for try := range 20 { // the day may turn meanwhile
				m := midnightIn(t, redis, in)
				p := newPolicy(t, fmt.Sprint("day", in.Seconds(), "-", try), weir.Limit{Rate: 10, Per: weir.Calendar(weir.Day, m.zone)})
				if takeInTurns(t, redis, nodes, p, func(_ int, sent, received int64) (least, most int64) { return m.next - received, m.next - sent }) {
					return
				}
			}
			t.Fatal("60 calls took more than 4 s, 20 times")
		})
	}
}

// takeInTurns lets nodes take from a limit of 10, each being the first once, and checks
// what is left and that it resets when resets says, in µs. It returns false if that
// came meanwhile.
func takeInTurns(t *testing.T, redis *redistest.Server, nodes []*Store, p *weir.Policy, resets func(call int, sent, received int64) (least, most int64)) bool {
	t.Helper()
	for first := range nodes {
		for call := range 12 {
			s := nodes[(first+call)%len(nodes)]
			sent := timeOf(t, redis)
			d, err := s.Take(context.Background(), p, fmt.Sprint("k", first), 1)
			if err != nil {
				t.Fatalf("call %d, by a node that is %v ahead: %v", call, s.skew, err)
			}
			least, most := resets(call, sent, timeOf(t, redis))
			if least <= 0 {
				return false
			}
			if left := max(0, 9-int64(call)); d.Allowed != (call < 10) || d.Remaining != left {
				t.Errorf("call %d, by a node that is %v ahead: got %s, want %d left", call, s.skew, show(d), left)
			}
			if got := d.ResetAfter.Microseconds(); got < least || got > most {
				t.Errorf("call %d, by a node that is %v ahead: resets after %d µs, want %d to %d by the server's clock", call, s.skew, got, least, most)
			}
		}
	}
	return true
}

// midnight is the next one in a zone, in µs since 1970.
type midnight struct {
	zone *time.Location
	next int64
}

// midnightIn returns a zone whose day turns in so long by the server's clock or, if
// that is negative, has turned so long ago.
func midnightIn(t *testing.T, redis *redistest.Server, in time.Duration) midnight {
	t.Helper()
	now := timeOf(t, redis) / 1_000_000
	const day = 24 * 3600
	offset := (day - now%day - int64(in.Seconds())) % day // then now + in is a midnight
	if offset > day/2 {
		offset -= day
	}
	next := now + int64(in.Seconds())
	if in < 0 {
		next += day
	}
	return midnight{time.FixedZone(fmt.Sprint("offset", offset), int(offset)), next * 1_000_000}
}
