package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// provider is a JSON-RPC server with the limit of one account: see window. A refused call is answered
// with 429 and Retry-After, and is not counted. /stats returns the statistics.
type provider struct {
	chain  chain
	costs  map[string]int64 // throughput units of each method
	jitter time.Duration    // calls arrive up to this much later than they were sent
	begin  time.Time

	mu     sync.Mutex // guards the fields below
	random *rand.Rand
	window window
	first  time.Duration // when the first call arrived, -1 before it
	stats  stats
}

// stats is what the provider has counted.
type stats struct {
	Granted   int64            `json:"granted_units"`
	Peak      int64            `json:"peak_units_in_10s"`
	Refused   int64            `json:"refused_calls"`
	Units     map[string]int64 `json:"units_by_method"`
	ElapsedMS int64            `json:"elapsed_ms"` // from the first call to the last
}

type call struct {
	ID     json.RawMessage
	Method string
	Params []json.RawMessage
}

type answer struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func newProvider(c chain, costs map[string]int64, jitter time.Duration, seed uint64) *provider {
	return &provider{
		chain: c, costs: costs, jitter: jitter, begin: time.Now(), first: -1,
		random: rand.New(rand.NewPCG(seed, 0)), stats: stats{Units: map[string]int64{}},
	}
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/stats" {
		reply(w, http.StatusOK, p.snapshot())
		return
	}
	calls, batch, err := p.readCalls(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		reply(w, http.StatusBadRequest, failure(nil, -32600, err.Error()))
		return
	}
	pause(r.Context(), p.delay())
	now := time.Since(p.begin)
	if wait := p.take(now, calls); wait > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
		reply(w, http.StatusTooManyRequests, failure(calls[0].ID, 429, "the account has exceeded its compute units per second"))
		return
	}
	var answers []answer
	for _, c := range calls {
		answers = append(answers, p.answer(now, c))
	}
	if batch {
		reply(w, http.StatusOK, answers)
	} else {
		reply(w, http.StatusOK, answers[0])
	}
}

// readCalls reads a call or a batch that can be admitted at some time.
func (p *provider) readCalls(body io.Reader) (calls []call, batch bool, err error) {
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, false, err
	}
	var one call
	if json.Unmarshal(data, &one) == nil {
		calls = []call{one}
	} else if batch, err = true, json.Unmarshal(data, &calls); err != nil {
		return nil, true, err
	}
	for _, c := range calls {
		if _, ok := p.costs[c.Method]; !ok {
			return nil, batch, fmt.Errorf("unknown method %q", c.Method)
		}
	}
	if units := p.units(calls); len(calls) == 0 || units > capacity {
		return nil, batch, fmt.Errorf("a batch of %d calls and %d units: split it, the limit is %d units", len(calls), units, capacity)
	}
	return calls, batch, nil
}

// units returns the sum of the costs of a batch.
func (p *provider) units(calls []call) (sum int64) {
	for _, c := range calls {
		sum += p.costs[c.Method]
	}
	return sum
}

// delay returns how long the next call is on its way.
func (p *provider) delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(p.random.Int64N(int64(p.jitter) + 1))
}

// take charges a batch that arrives at now, whole or not at all, and returns how long it has to wait.
func (p *provider) take(now time.Duration, calls []call) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first < 0 {
		p.first = now
	}
	p.stats.ElapsedMS = max(p.stats.ElapsedMS, (now - p.first).Milliseconds())
	if wait := p.window.take(now, p.units(calls)); wait > 0 {
		p.stats.Refused++
		return wait
	}
	for _, c := range calls {
		p.stats.Granted += p.costs[c.Method]
		p.stats.Units[c.Method] += p.costs[c.Method]
	}
	return 0
}

func (p *provider) answer(now time.Duration, c call) answer {
	text, err := result(c, p.chain.head(now))
	if err != nil {
		return failure(c.ID, -32602, err.Error())
	}
	return answer{Version: "2.0", ID: c.ID, Result: json.RawMessage(text)}
}

func (p *provider) snapshot() stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Peak, s.Units = p.window.peak, maps.Clone(s.Units)
	return s
}

func failure(id json.RawMessage, code int, message string) answer {
	return answer{Version: "2.0", ID: id, Error: &rpcError{code, message}}
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails if the client has gone
}
