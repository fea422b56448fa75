//go:build linux

// Package ethereum shows that unmodified Ethereum clients work through a gateway route: go-ethereum's
// ethclient and viem, against anvil, which is a real EVM node. It is a module of its own, so that nobody
// else downloads go-ethereum.
package ethereum

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/config"
	"github.com/weirlimit/weir/server"
	"github.com/weirlimit/weir/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// chainID is that of every anvil.
const chainID = 31337

// The account that every anvil gives money to, and its key, which are published.
const (
	richAddress = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
	richKey     = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
	poorAddress = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
)

// packages is where scripts/setup.sh installs what comes from npm.
const packages = "../../../tools/node_modules"

// startNode runs anvil on a free port until the test ends, and returns its address. It makes a block for each
// transaction.
func startNode(t *testing.T) string {
	t.Helper()
	program, err := filepath.Abs(filepath.Join(packages, "@foundry-rs/anvil-linux-amd64/bin/anvil"))
	if err != nil {
		t.Fatal(err)
	}
	var output buffer
	cmd := exec.Command(program, "--host", "127.0.0.1", "--port", "0")
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("anvil, which scripts/setup.sh installs: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	const begin = "Listening on "
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if _, line, found := strings.Cut(output.String(), begin); found && strings.Contains(line, "\n") {
			addr, _, _ := strings.Cut(line, "\n")
			return strings.TrimSpace(addr)
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("anvil has ended: %v\n%s", err, output.String())
		default:
		}
	}
	t.Fatalf("anvil does not listen:\n%s", output.String())
	return ""
}

// A buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// A route is a route of weir, and what was sent through it.
type route struct {
	URL  string
	node string

	mu   sync.Mutex // guards the field below
	sent []sent
}

// sent is a call as an endpoint got it.
type sent struct {
	endpoint string // "/one" or "/two"
	method   string
	filter   string // the first parameter of eth_getFilterChanges
	batch    bool
}

// serve runs weir as a file says until the test ends. Its two endpoints are one node, so that it does not matter which
// of them answers; what they get is recorded on the way. Time stands still for limits, so that tests do not depend on how
// fast the machine is: always if refusals is 0, else until so many calls have been refused, when a second passes at once.
func serve(t *testing.T, file string, refusals int64) *route {
	t.Helper()
	r := &route{node: "http://" + startNode(t)}
	endpoints := httptest.NewServer(r)
	t.Cleanup(endpoints.Close)
	loaded, err := config.Load(file, []string{
		"ANVIL_1=" + endpoints.URL + "/one", "ANVIL_2=" + endpoints.URL + "/two",
		"WEIR__LISTEN__HTTP=127.0.0.1:0", "WEIR__LISTEN__GRPC=127.0.0.1:0", "WEIR__LISTEN__RESP=127.0.0.1:0",
	})
	if err != nil {
		t.Fatal(err)
	}
	clock := frozen{jumps: refusals}
	table, err := memstore.New(memstore.Config{Now: clock.now})
	if err != nil {
		t.Fatal(err)
	}
	listens := make(chan server.Bound, 1)
	c := loaded.Server()
	c.Limiter, c.Log, c.OnListen = patient{table, &clock}, slog.New(slog.DiscardHandler), func(b server.Bound) { listens <- b }
	weir, err := server.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- weir.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case b := <-listens:
		r.URL = "http://" + b.HTTP.String() + "/gw/ethereum"
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	return r
}

// A patient store tells its clock of each call that it refuses.
type patient struct {
	weir.Limiter
	clock *frozen
}

func (p patient) Do(ctx context.Context, b *weir.Batch) error {
	err := p.Limiter.Do(ctx, b)
	if err == nil && b.Op == weir.ReserveAll && !b.Allowed() {
		p.clock.refusals.Add(1)
	}
	return err
}

// calls returns what was sent, of a method or, if that is "", of all.
func (r *route) calls(method string) (list []sent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sent {
		if method == "" || s.method == method {
			list = append(list, s)
		}
	}
	return list
}

// used returns how many endpoints got calls.
func (r *route) used() int {
	used := map[string]bool{}
	for _, s := range r.calls("") {
		used[s.endpoint] = true
	}
	return len(used)
}

// wantPinned fails unless each filter was asked at one endpoint only, and there was one.
func (r *route) wantPinned(t *testing.T) {
	t.Helper()
	at := map[string]string{}
	for _, s := range r.calls("eth_getFilterChanges") {
		if was, known := at[s.filter]; known && was != s.endpoint {
			t.Errorf("filter %s was asked at both endpoints", s.filter)
		}
		at[s.filter] = s.endpoint
	}
	if len(at) == 0 {
		t.Error("no filter was asked")
	}
}

// ServeHTTP records what an endpoint gets, and passes it on to the node.
func (r *route) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err == nil {
		err = r.record(req.URL.Path, body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	resp, err := nodeClient.Post(r.node, "application/json", bytes.NewReader(body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

func (r *route) record(endpoint string, body []byte) error {
	calls, batch, err := parse(body)
	if err != nil {
		return fmt.Errorf("%w: %s", err, body)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range calls {
		s := sent{endpoint: endpoint, method: c.Method, batch: batch}
		if c.Method == "eth_getFilterChanges" && len(c.Params) > 0 {
			s.filter = string(c.Params[0])
		}
		r.sent = append(r.sent, s)
	}
	return nil
}

// nodeClient keeps no connections, so none is left at the end.
var nodeClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

type rpcCall struct {
	Method string
	Params []json.RawMessage
}

func parse(body []byte) (calls []rpcCall, batch bool, err error) {
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		return calls, true, json.Unmarshal(body, &calls)
	}
	calls = make([]rpcCall, 1)
	return calls, false, json.Unmarshal(body, &calls[0])
}

// frozen is a clock that stands still, but for one second that passes at once.
type frozen struct {
	jumps    int64        // set once: at which refusal that is, 0 for never
	refusals atomic.Int64 // so far
}

func (f *frozen) now() weir.Instant {
	now := weir.Instant(time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC).UnixNano())
	if f.jumps > 0 && f.refusals.Load() >= f.jumps {
		now += weir.Instant(time.Second)
	}
	return now
}
