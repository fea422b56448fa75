// Package integrations holds the programs and configurations of this directory to what
// the README says of them. It is a module of its own, so that users of weir do not
// download the clients of Redis that are tried here.
package integrations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/config"
	"github.com/weirlimit/weir/server"
	"github.com/weirlimit/weir/store/memstore"
)

// built returns where the programs in Go are. The first call builds them.
var built = sync.OnceValues(build)

// rueidis looks for a cluster later than it closes.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(buildDir)
		os.Exit(code)
	}), goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

// buildDir is removed by TestMain. It is set once, by build.
var buildDir string

func build() (dir string, err error) {
	if buildDir, err = os.MkdirTemp("", "weir-integrations-"); err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", buildDir+"/", "./redis-go", "./grpc-go").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return buildDir, nil
}

// clock stands still unless it is moved, so counts do not depend on how busy the machine is.
type clock struct{ past atomic.Int64 }

func (c *clock) now() weir.Instant {
	begin := time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC)
	return weir.Instant(begin.Add(time.Duration(c.past.Load())).UnixNano())
}

// patient is a store whose clock advances only while a refused caller waits, so that the next
// call comes exactly on time. It can be set to fail first, or to refuse permanently, and
// records when it was called.
type patient struct {
	weir.Limiter
	clock    clock
	hopeless bool

	mu       sync.Mutex // guards the fields below
	failures int        // that are to come
	calls    []time.Time
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	p := &patient{}
	table, err := memstore.New(memstore.Config{Now: p.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	p.Limiter = table
	return p
}

func (p *patient) Take(ctx context.Context, policy *weir.Policy, key string, cost int64) (weir.Decision, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, time.Now())
	if p.failures > 0 {
		p.failures--
		return weir.Decision{}, errors.New("the store is unavailable")
	}
	if p.hopeless {
		return weir.Decision{Limit: 5, RetryAfter: weir.Never, Reason: weir.TooCostly}, nil
	}
	d, err := p.Limiter.Take(ctx, policy, key, cost)
	if err == nil && !d.Allowed && d.RetryAfter > 0 {
		p.clock.past.Add(int64(d.RetryAfter))
	}
	return d, err
}

// gaps returns the time from each call to the next.
func (p *patient) gaps() (list []time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := 1; i < len(p.calls); i++ {
		list = append(list, p.calls[i].Sub(p.calls[i-1]))
	}
	return list
}

// serve runs weir as a file of this directory says, changed by variables of the environment
// and with its listeners on free ports, until the test ends.
func serve(t *testing.T, store weir.Limiter, file string, environ ...string) server.Bound {
	t.Helper()
	for _, listener := range []string{"HTTP", "GRPC", "RESP"} {
		environ = append(environ, "WEIR__LISTEN__"+listener+"=127.0.0.1:0")
	}
	loaded, err := config.Load(file, environ)
	if err != nil {
		t.Fatal(err)
	}
	listens := make(chan server.Bound, 1)
	c := loaded.Server()
	c.Limiter, c.Log, c.OnListen = store, slog.New(slog.DiscardHandler), func(b server.Bound) { listens <- b }
	srv, err := server.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	select {
	case b := <-listens:
		return b
	case err := <-ended:
		ended <- err
		t.Fatal(err)
		return server.Bound{}
	}
}

// interpreter returns a program that runs others. What Debian packages for Python and Perl
// is seen by Debian's own only.
func interpreter(t *testing.T, name string) string {
	t.Helper()
	path := "/usr/bin/" + name
	if name == "node" {
		path = name
	}
	found, err := exec.LookPath(path)
	if err != nil {
		t.Fatalf("there is no %s, which scripts/setup.sh installs: %v", path, err)
	}
	return found
}

// environment is this process's, with what Node.js needs to find the packages of tools, and
// additions.
func environment(t *testing.T, additions ...string) []string {
	t.Helper()
	packages, err := filepath.Abs("../../tools/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	return append(append(os.Environ(), "NODE_PATH="+packages), additions...)
}
