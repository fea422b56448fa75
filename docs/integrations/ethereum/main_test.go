//go:build linux

// Package ethereum shows that unmodified Ethereum clients work through a gateway route: go-ethereum's
// ethclient and viem, against anvil, which is a real EVM node. It is a module of its own, so that nobody
// else downloads go-ethereum.
package ethereum

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/gateway"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/upstream"
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

// A route is a gateway route, what was sent through it, and what it has answered.
type route struct {
	URL string

	refused func() // called before each answer with status 429, if not nil

	mu      sync.Mutex // guards the fields below
	sent    []sent
	answers []answer
}

// sent is a call as an endpoint got it.
type sent struct {
	endpoint string // "one" or "two"
	method   string
	filter   string // the first parameter of eth_getFilterChanges
	batch    bool
}

// answer is what a client got.
type answer struct {
	status     int
	retryAfter string
}

// serve serves a route to two endpoints that are one node, so that it does not matter which of them answers. They are
// told apart by a query, which the node ignores.
func serve(t *testing.T, node string, change func(c *gateway.Config, store *memstore.Config)) *route {
	t.Helper()
	r := &route{}
	c := gateway.Config{Logger: slog.New(slog.DiscardHandler), Pool: upstream.Config{
		Name: "ethereum", JSONRPC: true, Transport: &recorder{r}, Logger: slog.New(slog.DiscardHandler),
		Endpoints: []upstream.Endpoint{
			{Alias: "anvil-1", RPC: secret.New("http://" + node + "/?endpoint=one")},
			{Alias: "anvil-2", RPC: secret.New("http://" + node + "/?endpoint=two")},
		},
	}}
	var store memstore.Config
	if change != nil {
		change(&c, &store)
	}
	table, err := memstore.New(store)
	if err != nil {
		t.Fatal(err)
	}
	handler, err := gateway.New(table, c)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(r.record(http.StripPrefix("/gw/ethereum", handler)))
	t.Cleanup(server.Close)
	r.URL = server.URL + "/gw/ethereum"
	return r
}

// record notes what the route answers.
func (r *route) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		next.ServeHTTP(&statusWriter{w, r}, req)
	})
}

// A statusWriter notes answers before they are sent.
type statusWriter struct {
	http.ResponseWriter
	route *route
}

func (w *statusWriter) WriteHeader(status int) {
	w.route.answered(answer{status, w.Header().Get("Retry-After")})
	w.ResponseWriter.WriteHeader(status)
}

func (r *route) answered(a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = append(r.answers, a)
	if a.status == http.StatusTooManyRequests && r.refused != nil {
		r.refused()
	}
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// refusals returns the answers with status 429.
func (r *route) refusals() (list []answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.answers {
		if a.status == http.StatusTooManyRequests {
			list = append(list, a)
		}
	}
	return list
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

// A recorder notes what is sent to endpoints.
type recorder struct{ route *route }

func (rec *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	calls, batch, err := parse(body)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, body)
	}
	rec.route.mu.Lock()
	for _, c := range calls {
		s := sent{endpoint: req.URL.Query().Get("endpoint"), method: c.Method, batch: batch}
		if c.Method == "eth_getFilterChanges" && len(c.Params) > 0 {
			s.filter = string(c.Params[0])
		}
		rec.route.sent = append(rec.route.sent, s)
	}
	rec.route.mu.Unlock()
	req.Body = io.NopCloser(bytes.NewReader(body))
	return transport.RoundTrip(req)
}

// transport keeps no connections, so none is left at the end.
var transport = &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext}

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

// frozen is a clock that stands still until start is called.
type frozen struct {
	mu    sync.Mutex
	began time.Time // zero while it stands still
}

func (f *frozen) start() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.began.IsZero() {
		f.began = time.Now()
	}
}

func (f *frozen) now() weir.Instant {
	f.mu.Lock()
	defer f.mu.Unlock()
	base := weir.Instant(time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC).UnixNano())
	if f.began.IsZero() {
		return base
	}
	return base + weir.Instant(time.Since(f.began))
}
