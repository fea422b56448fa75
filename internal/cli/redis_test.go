package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
)

// burst is that of the daemons' policy. It comes back within an hour.
const burst = 100

// slowDaemon starts a daemon whose limit is per hour, on a Redis.
func slowDaemon(t *testing.T, redis string, args ...string) *daemon {
	t.Helper()
	return slowDaemonWith(t, "", redis, args...)
}

// slowDaemonWith starts one with a password for Redis.
func slowDaemonWith(t *testing.T, password, redis string, args ...string) *daemon {
	t.Helper()
	name, value := noRaceSleep()
	env := []string{"SLOW=1", name + "=" + value, redisPassword + "=" + password, "REDIS_TIMEOUT=1s"} // as long as it takes to notice what others took
	d, err := startDaemon(t.TempDir(), env, append([]string{"--log-format", "json", "--redis", redis}, args...)...)
	t.Cleanup(func() {
		d.kill()
		if t.Failed() {
			t.Logf("the log of a daemon:\n%s", d.stderr.String())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// answer is what a check gets.
type answer struct {
	Allowed      bool   `json:"allowed"`
	Remaining    int64  `json:"remaining"`
	RetryAfterMS int64  `json:"retry_after_ms"`
	Reason       string `json:"reason"`
}

var oneShot = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}

// check calls a daemon. Every decision is a 200.
func (d *daemon) check(t *testing.T, key string, cost int64) (a answer) {
	t.Helper()
	body := fmt.Sprintf(`{"policy":"default","key":%q,"cost":%d}`, key, cost)
	resp, err := oneShot.Post(d.url+"/v1/check", "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return a
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s: status %d, %+v, %v", body, resp.StatusCode, a, err)
	}
	return a
}

// want checks whether a charge is admitted.
func (d *daemon) want(t *testing.T, key string, cost int64, allowed bool) {
	t.Helper()
	if a := d.check(t, key, cost); a.Allowed != allowed {
		t.Errorf("%d for %s: %+v, want allowed %v", cost, key, a, allowed)
	}
}

// spend takes n units from daemons in turn, one by one, a few at once, and returns how
// many were admitted.
func spend(t *testing.T, key string, n int, daemons ...*daemon) (admitted int64) {
	t.Helper()
	var count, next atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if daemons[i%int64(len(daemons))].check(t, key, 1).Allowed {
					count.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return count.Load()
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// awaitLog waits until a daemon has logged a message so often.
func (d *daemon) awaitLog(t *testing.T, msg string, times int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%q in the log", msg), func() bool {
		return strings.Count(d.stderr.String(), fmt.Sprintf("%q", msg)) >= times
	})
}

// awaitNodes waits until every daemon on a Redis knows that there are n: each has sent
// a heartbeat after all had sent one.
func awaitNodes(t *testing.T, redis *redistest.Server, n int) {
	t.Helper()
	var first map[string]string
	eventually(t, "heartbeats of all daemons", func() bool {
		items := redis.MustDo("ZRANGE", "weir:nodes", "0", "-1", "WITHSCORES").Items
		scores := map[string]string{}
		for i := 0; i+1 < len(items); i += 2 {
			scores[items[i].Text] = items[i+1].Text
		}
		if len(scores) < n || first == nil {
			first = nil
			if len(scores) == n {
				first = scores
			}
			return false
		}
		for node, at := range scores {
			if first[node] == at {
				return false
			}
		}
		return true
	})
}

// tierLog is what a daemon logs about the tier when it ends.
type tierLog struct {
	Msg       string `json:"msg"`
	Decisions struct {
		DenyCache int64 `json:"deny_cache"`
		Lease     int64 `json:"lease"`
		Store     int64 `json:"store"`
		Async     int64 `json:"async"`
		Fallback  int64 `json:"fallback"`
	} `json:"decisions"`
	StoreCalls int64 `json:"store_calls"`
	Failures   int64 `json:"failures"`
	Opened     int64 `json:"opened"`
	Closed     int64 `json:"closed"`
	Forfeited  int64 `json:"forfeited"`
	Unsynced   int64 `json:"unsynced"`
	Lost       int64 `json:"lost"`
	Unknown    int64 `json:"unknown"`
	Nodes      int64 `json:"nodes"`
}

// stop ends a daemon by SIGTERM and returns what it logs then.
func (d *daemon) stop(t *testing.T) (tier tierLog) {
	t.Helper()
	if _, code, err := d.signal(syscall.SIGTERM); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v", code, err)
	}
	for line := range strings.Lines(d.stderr.String()) {
		if err := json.Unmarshal([]byte(line), &tier); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if tier.Msg == "tier" {
			return tier
		}
	}
	t.Fatal("nothing about the tier in the log")
	return tier
}

// Of concurrent calls to both daemons, the burst is admitted once.
func TestSharedExactly(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a, b := slowDaemon(t, redis.Addr()), slowDaemon(t, redis.Addr(), "--consistency", "exact")
	if n := spend(t, "alice", burst+50, a, b); n != burst {
		t.Errorf("%d admitted, want %d", n, burst)
	}
	tier := a.stop(t)
	if d := tier.Decisions; d.Store+d.DenyCache != (burst+50)/2 || d.Lease+d.Async+d.Fallback != 0 || tier.StoreCalls < d.Store {
		t.Errorf("%+v", tier)
	}
}

// What one daemon has leased, the other cannot have. It can once the first has ended.
func TestSharedInLeases(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a, b := slowDaemon(t, redis.Addr(), "--consistency", "leased"), slowDaemon(t, redis.Addr(), "--consistency", "leased")
	admitted := spend(t, "alice", 30, a) + spend(t, "alice", 30, a, b)
	if admitted != 60 {
		t.Errorf("%d admitted of 60, which fit", admitted)
	}
	if tier := a.stop(t); tier.Decisions.Lease == 0 || tier.Forfeited != 0 || tier.Unsynced != 0 {
		t.Errorf("%+v", tier)
	}
	eventually(t, "what was leased is back", func() bool {
		admitted += spend(t, "alice", 1, b)
		return admitted >= burst
	})
	if n := spend(t, "alice", 20, b); n != 0 {
		t.Errorf("%d admitted beyond the burst", n)
	}
}

// A daemon that has not called Redis receives what the other has admitted, shortly after.
func TestSharedAfterwards(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a, b := slowDaemon(t, redis.Addr(), "--consistency", "async"), slowDaemon(t, redis.Addr(), "--consistency", "async")
	if left := b.check(t, "alice", 0).Remaining; left != burst { // it has cached state now
		t.Errorf("%d remain of an unused limit", left)
	}
	n := spend(t, "alice", burst+20, a)
	if n > burst || n < burst-2 { // cached state is rounded up
		t.Errorf("%d admitted by one daemon, want %d", n, burst)
	}
	eventually(t, "the other knows", func() bool { return b.check(t, "alice", 0).Remaining <= burst-n })
	b.want(t, "alice", burst-n+1, false)
	if tier := a.stop(t); tier.Decisions.Async == 0 || tier.Unsynced != 0 || tier.StoreCalls > burst {
		t.Errorf("%+v", tier)
	}
}

// outage is two daemons whose Redis has ended, and each of which has answered for a key
// so often that the breaker opened. The key was used before.
func outage(t *testing.T, onError string) (redis *redistest.Server, a, b *daemon, admitted [2]int64) {
	t.Helper()
	redis = redistest.Start(t)
	a, b = slowDaemon(t, redis.Addr(), "--on-error", onError), slowDaemon(t, redis.Addr(), "--on-error", onError)
	awaitNodes(t, redis, 2)
	a.want(t, "before", 1, true)
	b.want(t, "before", burst, false)
	redis.Stop()
	for i, d := range []*daemon{a, b} {
		admitted[i] = spend(t, "during", burst+50, d)
		d.awaitLog(t, "store unavailable: circuit breaker opened", 1)
	}
	return redis, a, b, admitted
}

// back is what must be after a Redis that has forgotten everything is back.
func back(t *testing.T, redis *redistest.Server, a, b *daemon) {
	t.Helper()
	redis.Restart()
	a.awaitLog(t, "store available again: circuit breaker closed", 1)
	b.awaitLog(t, "store available again: circuit breaker closed", 1)
	if n := spend(t, "after", burst+50, a, b); n != burst {
		t.Errorf("%d admitted when Redis is back, want %d", n, burst)
	}
}

func TestOutageLocal(t *testing.T) {
	t.Parallel()
	redis, a, b, admitted := outage(t, "local")
	if admitted != [2]int64{burst / 2, burst / 2} {
		t.Errorf("%d admitted, want each its half", admitted)
	}
	if got := a.check(t, "during", 1); got.Reason != "exhausted" || got.RetryAfterMS <= 0 {
		t.Errorf("beyond the share: %+v", got)
	}
	back(t, redis, a, b)
	more, lost := spend(t, "during", burst, a, b), int64(0)
	for _, d := range []*daemon{a, b} {
		tier := d.stop(t)
		if tier.Decisions.Fallback < burst+50 || tier.Failures == 0 || tier.Opened != 1 || tier.Closed != 1 || tier.Unsynced != 0 {
			t.Errorf("%+v", tier)
		}
		lost += tier.Lost + tier.Unknown // what may have been charged is not flushed again
	}
	if more > lost {
		t.Errorf("%d more admitted: usage was not flushed to Redis, besides %d units whose outcome is unknown", more, lost)
	}
	for _, want := range []string{`"msg":"store unavailable: circuit breaker opened","part":0,"error":"`, `"on_error":"local"`, `"msg":"store available again: circuit breaker closed","part":0`} {
		if !strings.Contains(a.stderr.String(), want) {
			t.Errorf("no %s in the log", want)
		}
	}
}

func TestOutageOpen(t *testing.T) {
	t.Parallel()
	redis, a, b, admitted := outage(t, "open")
	if admitted != [2]int64{burst + 50, burst + 50} {
		t.Errorf("%d admitted, want everything", admitted)
	}
	back(t, redis, a, b)
}

// A daemon that refuses while Redis is unavailable also ends then.
func TestOutageClosed(t *testing.T) {
	t.Parallel()
	redis, a, b, admitted := outage(t, "closed")
	if admitted != [2]int64{} {
		t.Errorf("%d admitted, want nothing", admitted)
	}
	if got := a.check(t, "during", 1); got.Reason != "store_down" || got.RetryAfterMS <= 0 {
		t.Errorf("%+v", got)
	}
	if tier := a.stop(t); tier.Opened != 1 || tier.Closed != 0 {
		t.Errorf("%+v", tier)
	}
	redis.Restart()
	a = slowDaemon(t, redis.Addr(), "--on-error", "closed")
	b.awaitLog(t, "store available again: circuit breaker closed", 1)
	if n := spend(t, "after", burst+50, a, b); n != burst {
		t.Errorf("%d admitted when Redis is back, want %d", n, burst)
	}
}

// Sentinels tell where the primary is.
func TestSentinel(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	addrs := strings.Join(sentinel.SentinelAddrs(), ",")
	a := slowDaemon(t, addrs, "--sentinel", sentinel.MasterName())
	b := slowDaemon(t, sentinel.Primary().Addr())
	a.want(t, "alice", 60, true)
	b.want(t, "alice", 60, false)
	b.want(t, "alice", 40, true)
	for _, tt := range []struct{ addrs, name, want string }{
		{addrs, "nobody", `it knows no primary by the name "nobody"`},
		{sentinel.Primary().Addr(), sentinel.MasterName(), "it is no Sentinel"},
	} {
		var stdout, stderr bytes.Buffer
		args := []string{"serve", "--http", "127.0.0.1:0", "--redis", tt.addrs, "--sentinel", tt.name, "--require-store"}
		if code := Main(t.Context(), args, &stdout, &stderr); code != exitFailure || !strings.Contains(stderr.String(), tt.want) {
			t.Errorf("exit code %d, want %q: %s", code, tt.want, stderr.String())
		}
	}
}

func TestWithPassword(t *testing.T) {
	for _, tt := range []struct{ address, password, want string }{
		{"redis://weir@host:1", "secret", "redis://weir:secret@host:1"},
		{"rediss://weir@a:1,b:2/3", "a%/@:b", "rediss://weir:a%25%2F@:b@a:1,b:2/3"},
		{"redis://weir@host:1", "", ""},
		{"redis://weir:own@host:1", "secret", ""},
		{"redis://:own@host:1", "secret", ""},
		{"redis://@host:1", "secret", ""},
		{"redis://host:1", "secret", ""},
		{"host:1", "secret", ""},
		{"weir@host:1", "secret", ""},
		{"/run/redis.sock", "secret", ""},
	} {
		got, put := withPassword(tt.address, tt.password)
		if want := cmp.Or(tt.want, tt.address); got != want || put != (tt.want != "") {
			t.Errorf("%s with %q: %s, %v", tt.address, tt.password, got, put)
		}
	}
}

// The rights that docs/redis.md tells operators to give are enough for two daemons.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	redis := redistest.Start(t)
	redis.MustDo("ACL", "SETUSER", "weir", "resetchannels")
	const password = "p@ss:w/rd%" // is escaped in URLs
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "ACL SETUSER weir ") {
			redis.MustDo(strings.Fields(strings.Replace(line, ">password", ">"+password, 1))...)
		}
	}
	address := "redis://weir@" + redis.Addr()
	a, b := slowDaemonWith(t, password, address), slowDaemonWith(t, password, address, "--consistency", "leased")
	if n := spend(t, "alice", burst+50, a, b); n == 0 || n > burst {
		t.Errorf("%d admitted, want at most %d", n, burst)
	}
	for _, d := range []*daemon{a, b} {
		if tier := d.stop(t); tier.Failures != 0 {
			t.Errorf("%+v", tier)
		}
	}
	for _, item := range redis.MustDo("ACL", "LOG").Items {
		t.Errorf("refused: %+v", item)
	}
}

// A daemon whose Redis forgets usage under pressure says so.
func TestWarnsOfEviction(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]int{"noeviction": 0, "volatile-lru": 1} {
		redis := redistest.Start(t, redistest.Config("maxmemory", "100mb", "maxmemory-policy", policy))
		d := slowDaemon(t, redis.Addr())
		d.awaitLog(t, "listening", 1) // which comes after the warning
		if n := strings.Count(d.stderr.String(), `"maxmemory_policy":"volatile-lru"`); n != want {
			t.Errorf("%s: %d warnings, want %d", policy, n, want)
		}
		resp, err := oneShot.Get(d.url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if line := fmt.Sprintf("\nweir_store_evicts_keys %d\n", want); err != nil || !strings.Contains(string(body), line) {
			t.Errorf("%s: the metrics do not have %q (%v)", policy, line, err)
		}
	}
}

// A daemon without calls sends nothing to Redis, except heartbeats, a ping and a look at the
// overrides now and then.
func TestIdleDaemonSendsLittle(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	d := slowDaemon(t, redis.Addr())
	d.want(t, "alice", 1, true)
	commands := func() int {
		n, err := strconv.Atoi(redis.Info("stats")["total_commands_processed"])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	began, before := time.Now(), commands()
	time.Sleep(5 * time.Second)
	n, took := commands()-before, time.Since(began)
	if most := 10 * took.Seconds(); float64(n) >= most {
		t.Errorf("%d commands in %v, want fewer than %.0f", n, took, most)
	}
}
