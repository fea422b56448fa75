package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/redistest"
)

const (
	withoutStore = "the daemon starts without Redis, and decides by on_error until it is connected"
	storeFound   = "connected to Redis, which was unavailable when the daemon started"
	degradedText = "ready, degraded: the store is unavailable\n"
)

// get returns the status and the body of a GET.
func (d *daemon) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	resp, err := oneShot.Get(d.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// wantDegraded checks that readiness and metrics report whether a daemon is degraded.
func (d *daemon) wantDegraded(t *testing.T, degraded bool) {
	t.Helper()
	ready, metric := "ready\n", "\nweir_degraded 0\n"
	if degraded {
		ready, metric = degradedText, "\nweir_degraded 1\n"
	}
	if status, body := d.get(t, "/readyz"); status != http.StatusOK || body != ready {
		t.Errorf("/readyz: %d %q, want 200 %q", status, body, ready)
	}
	if _, body := d.get(t, "/metrics"); !strings.Contains(body, metric) {
		t.Errorf("the metrics do not have %q", metric)
	}
}

// awaitConnected waits until a daemon that was started without Redis uses it for all keys.
func (d *daemon) awaitConnected(t *testing.T) {
	t.Helper()
	d.awaitLog(t, storeFound, 1)
	d.awaitReady(t)
	d.wantDegraded(t, false)
}

// awaitReady waits until a daemon is ready and not degraded.
func (d *daemon) awaitReady(t *testing.T) {
	t.Helper()
	eventually(t, "all breakers are closed", func() bool {
		_, body := d.get(t, "/readyz")
		return body == "ready\n"
	})
}

// A daemon that starts while Redis is down decides by on_error from the first request, and by
// Redis once that is up.
func TestStartsWithoutRedis(t *testing.T) {
	t.Parallel()
	for onError, admitted := range map[string]int64{"local": burst, "open": burst + 50, "closed": 0} {
		t.Run(onError, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			redis.Stop()
			d := slowDaemon(t, redis.Addr(), "--on-error", onError)
			d.awaitLog(t, withoutStore, 1)
			d.wantDegraded(t, true)
			if n := spend(t, "during", burst+50, d); n != admitted {
				t.Errorf("%d admitted without Redis, want %d", n, admitted)
			}
			redis.Restart()
			d.awaitConnected(t)
			other := slowDaemon(t, redis.Addr())
			if n := spend(t, "after", burst+50, d, other); n != burst {
				t.Errorf("%d admitted with Redis, want %d", n, burst)
			}
			if tier := d.stop(t); tier.Decisions.Fallback != burst+50 || tier.Unsynced != 0 || tier.Lost != 0 {
				t.Errorf("%+v", tier)
			}
		})
	}
}

// Units that were admitted before Redis was reached are charged there afterwards, whatever
// consistency the daemon has.
func TestChargesWhatItAdmittedWithoutRedis(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exact", "leased", "async"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			redis.Stop()
			d := slowDaemon(t, redis.Addr(), "--consistency", mode)
			d.want(t, "alice", 70, true)
			redis.Restart()
			d.awaitLog(t, storeFound, 1)
			other := slowDaemon(t, redis.Addr())
			eventually(t, "the units are charged in Redis", func() bool { return other.check(t, "alice", 0).Remaining <= 30 })
			other.want(t, "alice", 31, false)
		})
	}
}

// What a daemon reads when it starts, it reads when it is connected: overrides, the history of
// limits and the eviction policy; and it is counted as a node.
func TestReadsLaterWhatItCouldNotReadAtStart(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Config("maxmemory", "100mb", "maxmemory-policy", "volatile-lru", "save", "3600 1"))
	dir := t.TempDir()
	const ten, twenty = "10 per 10h0m0s (gcra)", "20 per 10h0m0s (gcra)"
	a := startConfigured(t, redis, filepath.Join(dir, "a.yaml"), perHour(10))
	write(t, a.file, perHour(20))
	wantLimit(t, 20, 20, a)
	a.override(t, "vip", 7)
	a.stop(t)
	redis.Stop()

	b := startConfigured(t, redis, filepath.Join(dir, "b.yaml"), perHour(10))
	b.wantDegraded(t, true)
	wantLimit(t, 10, 10, b)
	if status, body := b.get(t, "/admin/v1/overrides"); status < 500 {
		t.Errorf("overrides that cannot be read: %d %s", status, body)
	}
	redis.Restart()
	b.awaitConnected(t)
	b.wantChanges(t, logLine{Level: "WARN", Msg: notInForce, Configured: ten, InForce: twenty})
	b.awaitLog(t, "Redis discards keys when its memory is full, and what was used with them: set maxmemory-policy noeviction", 1)
	redis.Pause() // in the next outage the daemon decides by the limits in force, although nobody has called it meanwhile
	wantLimit(t, 20, 20, b)
	redis.Resume()
	b.awaitReady(t)
	wantLimit(t, 20, 20, b)
	eventually(t, "the override is in force", func() bool { return b.limitOf(t, "vip") == 7 })
	if n := strings.Count(b.stderr.String(), `"maxmemory_policy":"volatile-lru"`); n != 1 {
		t.Errorf("%d warnings about eviction, want 1", n)
	}
	if _, body := b.get(t, "/metrics"); !strings.Contains(body, "\nweir_store_evicts_keys 1\n") || !strings.Contains(body, "\nweir_nodes 1\n") {
		t.Error("the metrics say neither that Redis evicts keys nor that there is a node")
	}
	if n := redis.MustDo("ZCARD", "weir:nodes").Text; n != "1" {
		t.Errorf("%s nodes in Redis, want 1", n)
	}
}

// override has a daemon give a key another limit.
func (c configured) override(t *testing.T, key string, n int) {
	t.Helper()
	body := fmt.Sprintf(`{"policy":"api","key":%q,"limits":[{"rate":%d,"per":"10h"}],"ttl_s":3600}`, key, n)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, c.url+"/admin/v1/keys/override", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := oneShot.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		t.Fatalf("override: status %d, %s", resp.StatusCode, text)
	}
}

// limitOf returns the limit of "api" for a key.
func (c configured) limitOf(t *testing.T, key string) int64 {
	t.Helper()
	resp, err := oneShot.Post(c.url+"/v1/check", "application/json", strings.NewReader(fmt.Sprintf(`{"policy":"api","key":%q,"cost":0}`, key)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var a struct{ Limit int64 }
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		t.Fatal(err)
	}
	return a.Limit
}

// The primary is found by Sentinels, and the nodes of a Cluster by one of them, when they are up.
func TestStartsWithoutSentinelsOrCluster(t *testing.T) {
	t.Parallel()
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		sentinel := redistest.StartSentinel(t)
		for _, s := range sentinel.Sentinels() {
			s.Stop()
		}
		d := slowDaemon(t, strings.Join(sentinel.SentinelAddrs(), ","), "--sentinel", sentinel.MasterName())
		d.wantDegraded(t, true)
		d.want(t, "alice", 60, true)
		for _, s := range sentinel.Sentinels() {
			s.Restart()
		}
		d.awaitConnected(t)
		wantShared(t, d, sentinel.Primary().Addr())
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.StartCluster(t)
		first := cluster.Nodes()[0]
		first.Pause() // the only address that the daemon knows
		d := slowDaemon(t, first.Addr())
		d.wantDegraded(t, true)
		d.want(t, "alice", 60, true)
		first.Resume()
		cluster.WaitOK()
		d.awaitConnected(t)
		wantShared(t, d, cluster.Addrs()[1])
	})
}

// wantShared checks that a daemon shares the counters of a Redis.
func wantShared(t *testing.T, d *daemon, redis string) {
	t.Helper()
	other := slowDaemon(t, redis)
	eventually(t, "alice's units are charged in Redis", func() bool { return other.check(t, "alice", 0).Remaining <= 40 })
	for i := range 20 {
		key := fmt.Sprintf("key%d", i)
		d.want(t, key, 60, true)
		other.want(t, key, 41, false)
	}
}

// What is wrong with Redis is logged, and ends a daemon with --require-store.
func TestSaysWhyItStartsWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Password("default", "secret"))
	foreign := redistest.Start(t)
	foreign.MustDo("SET", "weir:overrides", "not a hash")
	for _, tt := range []struct {
		name, redis, password, want string
		degraded                    bool
	}{
		{"unreachable", "127.0.0.1:1", "", "redisconn: 127.0.0.1:1: connection refused", true},
		{"no password", redis.Addr(), "", "it requires a password, and none is set", true},
		{"wrong password", redis.Addr(), "guessed", `wrong password for user \"default\"`, true},
		{"overrides", foreign.Addr(), "", "WRONGTYPE", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := slowDaemonWith(t, tt.password, tt.redis)
			d.wantDegraded(t, tt.degraded)
			d.want(t, "alice", 1, true)
			if text := d.stderr.String(); !strings.Contains(text, tt.want) {
				t.Errorf("the log does not have %s", tt.want)
			}
			if strings.Contains(d.stderr.String(), "counts are in Redis") == tt.degraded {
				t.Errorf("the log must say that counts are in Redis only if they are: %v", !tt.degraded)
			}
			if tier := d.stop(t); (tier.Decisions.Fallback == 1) != tt.degraded {
				t.Errorf("%+v", tier)
			}
			strict, err := startDaemon(t.TempDir(), []string{redisPassword + "=" + tt.password}, "--redis", tt.redis, "--require-store")
			t.Cleanup(strict.kill)
			if err == nil {
				t.Fatal("a daemon that requires its store has started without it")
			}
			_ = strict.cmd.Wait()
			text := strings.ReplaceAll(strict.stderr.String(), `"`, `\"`)
			if code := strict.cmd.ProcessState.ExitCode(); code != exitFailure || !strings.Contains(text, tt.want) {
				t.Errorf("exit code %d, want %d and %s: %s", code, exitFailure, tt.want, text)
			}
		})
	}
}

// A daemon that was never connected ends cleanly; goleak looks for what it leaves.
func TestEndsWithoutRedis(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stderr syncBuffer
	code := Main(ctx, []string{"serve", "--http", "localhost:0", "--grpc", "off", "--resp", "off", "--redis", "127.0.0.1:1"},
		writerFunc(func([]byte) { cancel() }), &stderr)
	if code != exitOK || !strings.Contains(stderr.String(), "msg=stopped") {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
}
