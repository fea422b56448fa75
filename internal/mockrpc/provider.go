package mockrpc

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/jsonrpc"
)

// MaxBody is the length of the longest body that the provider reads, in bytes.
const MaxBody = 1 << 20

// Provider is a JSON-RPC provider. Its methods may be called by any number of goroutines; it has none of its
// own.
type Provider struct {
	config  Config // set by New, like everything before the lock
	unit    string
	table   *budget.Table
	mux     *http.ServeMux
	started time.Time // of the limits, like the time since then
	began   time.Time // when the block config.FirstBlock was made
	callers []*caller // by their keys' places in the configuration
	byKey   map[string]*caller

	mu           sync.Mutex // guards the fields below, and what is behind accounts and callers
	last         time.Duration
	head         uint64
	accounts     []*account // as in the configuration
	faults       faults
	state        state
	unauthorized int64
	malformed    int64
}

// caller is a key, and what was counted of it.
type caller struct {
	key      string
	account  *account
	requests int64
	early    int64
	methods  map[string]*Counts
}

func (c *caller) counts(method string) *Counts {
	name := row(method)
	if c.methods[name] == nil {
		c.methods[name] = new(Counts)
	}
	return c.methods[name]
}

// New returns a provider, whose time begins now.
func New(c Config) (*Provider, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	table, err := c.table()
	if err != nil {
		return nil, err
	}
	p := &Provider{
		config: c, unit: c.unit(), table: table, started: c.Now(), byKey: make(map[string]*caller),
		state: state{filters: make(map[string]*filter), sent: make(map[string]*transaction)},
	}
	for _, a := range c.Accounts {
		own := newAccount(c, a)
		p.accounts = append(p.accounts, own)
		for _, key := range a.Keys {
			one := &caller{key: key, account: own, methods: make(map[string]*Counts)}
			p.byKey[key] = one
			p.callers = append(p.callers, one)
		}
	}
	p.began = p.started
	if c.FirstBlock == 0 {
		p.began = time.Unix(0, 0)
	}
	p.mux = p.routes()
	return p, nil
}

func (p *Provider) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{$}", p.serveCalls)
	mux.HandleFunc("POST /v2/{key}", p.serveCalls)
	mux.HandleFunc("GET /mock/stats", p.serveStats)
	mux.HandleFunc("GET /mock/faults", p.listFaults)
	mux.HandleFunc("POST /mock/faults", p.addFault)
	mux.HandleFunc("DELETE /mock/faults", p.clearFaults)
	mux.HandleFunc("DELETE /mock/faults/{id}", p.removeFault)
	return mux
}

// Keys returns the keys of all accounts, in the order of the configuration.
func (p *Provider) Keys() []string {
	keys := make([]string, len(p.callers))
	for i, c := range p.callers {
		keys[i] = c.key
	}
	return keys
}

// Path returns the path for calls with a key.
func Path(key string) string {
	if key == "" {
		return "/"
	}
	return "/v2/" + key
}

// ServeHTTP answers calls at / and /v2/KEY, and administration at /mock/.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.mux.ServeHTTP(w, r) }

// nowLocked returns the time since the start, which never goes back.
func (p *Provider) nowLocked() time.Duration {
	p.last = max(p.last, p.config.Now().Sub(p.started))
	return p.last
}

// headLocked returns the newest block, which never goes back. By default it is that of the wall clock, also if the
// machine has slept.
func (p *Provider) headLocked() uint64 {
	age := p.config.Now().Sub(p.began)
	p.head = max(p.head, p.config.FirstBlock+uint64(max(0, age)/p.config.BlockTime))
	return p.head
}

// answer is the response to a request of calls.
type answer struct {
	status     int
	retryAfter time.Duration // 0 for no header
	text       string        // the body, unless it is JSON
	json       any           // nil for none
	delay      time.Duration
	reset      bool
}

// call is one of a request.
type call struct {
	jsonrpc.Call
	params params
}

func (p *Provider) serveCalls(w http.ResponseWriter, r *http.Request) {
	from := p.byKey[keyOf(r)]
	if from == nil {
		p.count(&p.unauthorized)
		refused := refusals["unauthorized"]
		answer{status: refused.status, json: failure("", refused.err())}.write(w)
		return
	}
	calls, batch, status, err := p.readCalls(w, r)
	if err != nil {
		p.count(&p.malformed)
		answer{status: status, json: failure("", err)}.write(w)
		return
	}
	a := p.answer(from, calls, batch)
	if !sleep(r.Context(), a.delay) {
		panic(http.ErrAbortHandler) // an empty response would look like an answer
	}
	a.write(w)
}

func (p *Provider) count(n *int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*n++
}

// readCalls reads the body of a request. An error comes with the status to answer.
func (p *Provider) readCalls(w http.ResponseWriter, r *http.Request) (calls []call, batch bool, status int, bad *callError) {
	invalid := func(status int, text string) ([]call, bool, int, *callError) {
		return nil, false, status, &callError{Code: jsonrpc.CodeInvalidRequest, Message: text}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
		return invalid(http.StatusRequestEntityTooLarge, "the body has more than "+strconv.Itoa(MaxBody)+" bytes")
	} else if err != nil {
		return invalid(http.StatusBadRequest, "the body could not be read")
	}
	request, err := jsonrpc.Parse(body)
	if e, malformed := errors.AsType[*jsonrpc.Error](err); malformed {
		return nil, false, http.StatusBadRequest, &callError{Code: e.Code, Message: e.Error()}
	}
	if len(request.Calls) > p.config.MaxBatch {
		return invalid(http.StatusBadRequest, "a batch may have "+strconv.Itoa(p.config.MaxBatch)+" calls")
	}
	return withParams(request, body), request.Batch, 0, nil
}

// withParams adds the parameters, which jsonrpc leaves out. Those that are no array are none.
func withParams(request jsonrpc.Request, body []byte) []call {
	members := make([]struct{ Params json.RawMessage }, 1)
	if request.Batch {
		_ = json.Unmarshal(body, &members) // it was parsed before
	} else {
		_ = json.Unmarshal(body, &members[0])
	}
	calls := make([]call, len(request.Calls))
	for i, c := range request.Calls {
		calls[i].Call = c
		_ = json.Unmarshal(members[i].Params, &calls[i].params)
	}
	return calls
}

// sleep waits, and returns false if the client has gone or the server ends.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func (a answer) write(w http.ResponseWriter) {
	if a.reset {
		resetConnection(w)
	}
	if a.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(seconds(a.retryAfter), 10))
	}
	body := []byte(a.text)
	if a.json != nil {
		w.Header().Set("Content-Type", "application/json")
		body, _ = json.Marshal(a.json) // which are maps, texts and numbers
	} else if a.text != "" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(body) // fails if the client has gone
}

// resetConnection ends the connection as a machine that has crashed does. It does not return.
func resetConnection(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil { // HTTP/2 cannot
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
	panic(http.ErrAbortHandler)
}
