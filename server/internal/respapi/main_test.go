package respapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/store/memstore"
)

// rueidis looks for a cluster later than it closes.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

// policies are "default", "tight", "slots", which only reservations can take, "mixed", with
// limits by address and in tokens, and "jobs", of which the classes realtime and backfill each have
// a part.
func policies() []ruleset.Policy {
	second := weir.Every(time.Second)
	return []ruleset.Policy{
		{Name: "default", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 100, Per: second, Burst: 100}}}},
		{Name: "tight", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 2, Per: second}}}},
		{Name: "slots", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 2, Algorithm: weir.Concurrency}}}},
		{Name: "mixed", Limits: []ruleset.Limit{
			{Limit: weir.Limit{Rate: 5, Per: second}},
			{Limit: weir.Limit{Name: "per-ip", Rate: 3, Per: second}, By: "ip"},
			{Limit: weir.Limit{Name: "tokens", Rate: 1000, Per: weir.Every(time.Minute)}, Unit: "tokens"},
		}},
		{Name: "jobs", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 10, Per: second, Classes: weir.ClassesOf(
			weir.Class{Name: "realtime", Guaranteed: 6, NoBorrow: true}, weir.Class{Name: "backfill", Guaranteed: 4, NoBorrow: true},
		)}}}},
	}
}

// fixture is what the servers of a test stand on.
type fixture struct {
	*Server
	clock *apitest.Clock
	store *memstore.Table
	state atomic.Pointer[call.State]

	mu      sync.Mutex // guards the field below
	records []ruleset.Record
}

func (f *fixture) observe(r *ruleset.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := *r
	kept.Key = strings.Clone(r.Key) // which the next command overwrites
	f.records = append(f.records, kept)
}

// classes returns the classes of the last n records.
func (f *fixture) classes(n int) (list string) {
	for _, r := range f.records[len(f.records)-n:] {
		list += r.Class + " "
	}
	return list
}

// tokenOf returns a client's token.
func tokenOf(name string) string { return strings.Repeat(name+"-", 40)[:40] }

// setClients puts clients in force: name, name=policy or name=policy/class.
func (f *fixture) setClients(t testing.TB, open bool, names ...string) {
	t.Helper()
	var list []identity.Client
	for _, n := range names {
		name, policy, limited := strings.Cut(n, "=")
		c := identity.Client{Name: name, Tokens: []secret.Secret{secret.New(tokenOf(name))}}
		if limited {
			policy, class, classed := strings.Cut(policy, "/")
			if c.Grants.Policies = []string{policy}; classed {
				c.Grants.Classes = []string{class}
			}
		}
		list = append(list, c)
	}
	clients, err := identity.NewClients(list)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := ruleset.Compile(policies(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if f.Server != nil {
		rules = f.cfg.Core.Engine.Rules()
	}
	f.state.Store(&call.State{Rules: rules, Authenticator: &identity.Authenticator{Clients: clients, Open: open, Failures: &identity.Failures{}}})
}

func newFixture(t testing.TB, clients ...string) *fixture {
	t.Helper()
	f := &fixture{clock: apitest.NewClock()}
	f.setClients(t, false, clients...)
	f.store = apitest.Table(t, f.clock.Now)
	f.decideBy(t, f.store)
	t.Cleanup(f.cancel)
	return f
}

// decideBy makes a server on a limiter.
func (f *fixture) decideBy(t testing.TB, l weir.Limiter) {
	t.Helper()
	engine, err := ruleset.New(l, f.state.Load().Rules)
	if err != nil {
		t.Fatal(err)
	}
	if f.Server != nil {
		f.cancel()
	}
	f.Server = New(Config{
		Core:            &call.Core{Engine: engine, Observe: f.observe, ObserveEach: apitest.Each(f.observe), Log: slog.New(slog.DiscardHandler)},
		State:           f.state.Load,
		ObserveAdmitted: func(*ruleset.Variant, int) bool { return false }, // each is kept
		Version:         "1.2.3", Idle: DefaultIdle,
	})
}

// script is a connection whose peer sends one input after the other, each when the ones
// before have been answered.
type script struct {
	net.Conn // nil: what is not needed panics
	inputs   []string
	replies  []string // to each input
	rest     string
	piece    int // bytes that a read returns at most; 0 = all
	from     net.Addr
}

func (s *script) Read(b []byte) (int, error) {
	if s.rest == "" {
		if len(s.inputs) == len(s.replies) {
			return 0, io.EOF
		}
		s.rest = s.inputs[len(s.replies)]
		s.replies = append(s.replies, "")
	}
	if s.piece > 0 && len(b) > s.piece {
		b = b[:s.piece]
	}
	n := copy(b, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *script) Write(b []byte) (int, error) {
	s.replies[len(s.replies)-1] += string(b)
	return len(b), nil
}

func (s *script) Close() error                     { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }
func (s *script) LocalAddr() net.Addr              { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6380} }

func (s *script) RemoteAddr() net.Addr {
	if s.from != nil {
		return s.from
	}
	return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1234}
}

// play sends inputs and returns the replies, the last one possibly missing.
func (f *fixture) play(inputs ...string) []string {
	s := &script{inputs: inputs}
	newConn(f.Server, s).serve()
	return s.replies
}

// want plays lines and compares the replies, given in the same order.
func (f *fixture) want(t *testing.T, linesAndReplies ...string) {
	t.Helper()
	var lines, want []string
	for i, s := range linesAndReplies {
		if i%2 == 0 {
			lines = append(lines, s+"\r\n")
		} else {
			want = append(want, s+"\r\n")
		}
	}
	got := f.play(lines...)
	for i := range want {
		if i >= len(got) {
			t.Fatalf("%q: the connection had ended", lines[i])
		}
		if got[i] != want[i] {
			t.Errorf("%q: %q, want %q", lines[i], got[i], want[i])
		}
	}
}

// listen serves on a free port of loopback.
func (f *fixture) listen(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- f.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := contextWithTimeout(5 * time.Second)
		defer cancel()
		if err := f.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-ended; err != ErrClosed {
			t.Errorf("serve: %v", err)
		}
	})
	return l.Addr().String()
}

// dial connects, with a deadline for all.
func dial(t testing.TB, address string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c, bufio.NewReader(c)
}

// multibulk returns a command as clients send it.
func multibulk(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

func contextWithTimeout(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// throttleOne answers one CL.THROTTLE.
func throttleOne(t *throttler, client, key string, n params, quantity int64) (d weir.Decision, err error) {
	p, err := t.policy(client, n)
	if err != nil {
		return d, err
	}
	if quantity == 0 || quantity > n.burst {
		return t.look(context.Background(), p, key, quantity)
	}
	b := weir.Batch{Op: weir.TakeEach, Charges: []weir.Charge{{Policy: p, Key: key, Cost: quantity}}}
	errs := t.take(context.Background(), &b)
	return b.Decisions[0], errs[0]
}

// heap returns the bytes in use after a collection.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
