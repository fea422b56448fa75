package mockrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/budget"
)

// newProvider returns a provider for a test.
func newProvider(t testing.TB, c Config) *Provider {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

type reply struct {
	status int
	header http.Header
	body   string
}

// class returns what budget says about a response, "" for no refusal.
func (r reply) class() string {
	if refusal, refused := budget.Classify(r.status, r.header, []byte(r.body), time.Now()); refused {
		return refusal.Class.String()
	}
	return ""
}

// send sends a body to a path.
func send(p http.RoundTripper, path, body string, headers ...string) (reply, error) {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://mock.invalid"+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	resp, err := p.RoundTrip(r)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(text)}, err
}

func mustSend(t testing.TB, p http.RoundTripper, path, body string, headers ...string) reply {
	t.Helper()
	r, err := send(p, path, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// calling returns the body of a call.
func calling(method string, params ...any) string {
	list, err := json.Marshal(append([]any{}, params...))
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`, method, list)
}

// batch returns the body of several calls of a method, with the ids 0, 1, …
func batch(method string, n int) string {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `,{"jsonrpc":"2.0","id":%d,"method":%q}`, i, method)
	}
	return "[" + strings.TrimPrefix(b.String(), ",") + "]"
}

// result returns the result of a call that has one.
func result[T any](t *testing.T, p http.RoundTripper, body string) (value T) {
	t.Helper()
	r := mustSend(t, p, "/v2/demo", body)
	var answer struct {
		ID     int
		Result *T
	}
	if err := json.Unmarshal([]byte(r.body), &answer); err != nil || r.status != 200 || answer.ID != 7 {
		t.Fatalf("%s: %d %s, %v", body, r.status, r.body, err)
	}
	if answer.Result != nil {
		value = *answer.Result
	}
	return value
}

func TestMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(t, Config{Rate: MaxRate, ChainID: 8453, FirstBlock: 100})
		time.Sleep(25 * time.Second) // two blocks
		tests := []struct{ body, want string }{
			{calling("eth_chainId"), `"0x2105"`},
			{calling("net_version"), `"8453"`},
			{calling("eth_blockNumber"), `"0x66"`},
			{calling("web3_clientVersion"), `"weir-mock/1"`},
			{calling("eth_getBalance", someAddress, "latest"), `"0xde0b6b3a7640000"`},
			{calling("eth_call", map[string]any{"to": someAddress}, "latest"), `"` + zeroWord + `"`},
			{calling("eth_getBlockByNumber", "0x67", false), `null`},
			{calling("eth_getTransactionReceipt", zeroWord), `null`},
			{calling("eth_getLogs", map[string]any{"fromBlock": "0x5b", "toBlock": "0x63"}), `[]`},
			{calling("eth_uninstallFilter", "0x1"), `false`},
		}
		for _, tt := range tests {
			if got := string(result[json.RawMessage](t, p, tt.body)); got != tt.want && (got != "" || tt.want != "null") {
				t.Errorf("%s = %s, want %s", tt.body, got, tt.want)
			}
		}
		errors := map[string]int{
			calling("eth_nothing"):                codeMethod,
			calling("eth_getBlockByNumber", "12"): codeParams,
			calling("eth_getLogs"):                codeParams,
			calling("eth_getLogs", map[string]any{"fromBlock": "earliest", "toBlock": "0xffffffffff"}): codeParams,
			calling("eth_getLogs", map[string]any{"fromBlock": "0x5", "toBlock": "0x4"}):               codeParams,
			calling("eth_sendRawTransaction", 5):                                                       codeParams,
			calling("eth_getFilterChanges", "0x1"):                                                     codeServer,
			`{"jsonrpc":"2.0","id":7,"method":"eth_getLogs","params":{"fromBlock":1}}`:                 codeParams,
		}
		for body, want := range errors {
			if r := mustSend(t, p, "/v2/demo", body); r.status != 200 || !strings.Contains(r.body, fmt.Sprintf(`"code":%d,`, want)) {
				t.Errorf("%s: %d %s, want code %d", body, r.status, r.body, want)
			}
		}
	})
}

func TestBlocksAreOneChain(t *testing.T) {
	p := newProvider(t, Config{Rate: MaxRate, FirstBlock: 1000})
	type block struct{ Number, Hash, ParentHash, Timestamp string }
	parent := result[block](t, p, calling("eth_getBlockByNumber", "0x3e6", false))
	head := result[block](t, p, calling("eth_getBlockByNumber", "0x3e7", false))
	if head.ParentHash != parent.Hash || head.Number != "0x3e7" || head.Timestamp <= parent.Timestamp {
		t.Errorf("%+v follows %+v", head, parent)
	}
	type log struct{ BlockNumber, BlockHash, TransactionHash string }
	logs := result[[]log](t, p, calling("eth_getLogs", map[string]string{"fromBlock": "0x3de", "toBlock": "latest"})) // from 990
	if len(logs) != 2 || logs[0].BlockNumber != "0x3de" || logs[1].BlockNumber != "0x3e8" {
		t.Fatalf("logs %+v", logs)
	}
	receipt := result[log](t, p, calling("eth_getTransactionReceipt", logs[0].TransactionHash))
	if receipt != logs[0] {
		t.Errorf("receipt %+v of %+v", receipt, logs[0])
	}
	type fullBlock struct {
		Hash         string
		Transactions []struct{ Hash, From, V string }
	}
	if b := result[fullBlock](t, p, calling("eth_getBlockByNumber", "0x3de", true)); len(b.Transactions) != 1 || b.Transactions[0].Hash != logs[0].TransactionHash || b.Hash != logs[0].BlockHash {
		t.Errorf("block %+v", b)
	}
}

func TestTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(t, Config{})
		one, two := calling("eth_sendRawTransaction", "0x02f801"), calling("eth_sendRawTransaction", "0x02f802")
		hash := result[string](t, p, one)
		if again, other := result[string](t, p, one), result[string](t, p, two); again != hash || other == hash {
			t.Errorf("hashes %s, %s and %s", hash, again, other)
		}
		if got, want := p.Stats().Transactions, (TransactionStats{Executed: 3, Distinct: 2, Duplicates: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if got := result[any](t, p, calling("eth_getTransactionReceipt", hash)); got != nil {
			t.Errorf("receipt %v before the next block", got)
		}
		time.Sleep(DefaultBlockTime)
		if got := result[map[string]any](t, p, calling("eth_getTransactionReceipt", hash)); got["transactionHash"] != hash {
			t.Errorf("receipt %v", got)
		}
	})
}

func TestFilters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, other := newProvider(t, Config{Rate: MaxRate}), newProvider(t, Config{})
		blocks, logs := result[string](t, p, calling("eth_newBlockFilter")), result[string](t, p, calling("eth_newFilter", map[string]any{}))
		poll := func(id string) int { return len(result[[]any](t, p, calling("eth_getFilterChanges", id))) }
		if n := poll(blocks) + poll(logs); n != 0 {
			t.Errorf("%d changes without a new block", n)
		}
		time.Sleep(20 * DefaultBlockTime)
		if b, l := poll(blocks), poll(logs); b != 20 || l != 2 {
			t.Errorf("%d blocks and %d logs, want 20 and 2", b, l)
		}
		if n := poll(blocks); n != 0 {
			t.Errorf("%d blocks twice", n)
		}
		notFound := `"code":-32000,"message":"filter not found"`
		if r := mustSend(t, other, "/v2/demo", calling("eth_getFilterChanges", blocks)); !strings.Contains(r.body, notFound) {
			t.Errorf("another provider says %s", r.body)
		}
		if !result[bool](t, p, calling("eth_uninstallFilter", blocks)) {
			t.Error("there was no filter to remove")
		}
		time.Sleep(filterTimeout)
		for _, id := range []string{blocks, logs} {
			if r := mustSend(t, p, "/v2/demo", calling("eth_getFilterChanges", id)); !strings.Contains(r.body, notFound) {
				t.Errorf("after its end a filter says %s", r.body)
			}
		}
		for range maxFilters {
			result[string](t, p, calling("eth_newBlockFilter"))
		}
		if r := mustSend(t, p, "/v2/demo", calling("eth_newFilter")); !strings.Contains(r.body, "too many filters") {
			t.Errorf("one filter more: %s", r.body)
		}
	})
}

func TestKeys(t *testing.T) {
	p := newProvider(t, Config{Accounts: []Account{{Name: "a", Keys: []string{"k1", "k2"}}, {Name: "b", Keys: []string{"k3"}}, {Name: "c", Keys: []string{""}}}})
	tests := []struct {
		name, path string
		headers    []string
		want       int
	}{
		{"path", "/v2/k1", nil, 200},
		{"bearer", "/", []string{"Authorization: Bearer k2"}, 200},
		{"header", "/", []string{"X-Api-Key: k3"}, 200},
		{"no key", "/", nil, 200},
		{"unknown", "/v2/nobody", nil, 401},
		{"another scheme", "/", []string{"Authorization: Basic k1"}, 200}, // as no key
		{"another path", "/v3/k1", nil, 404},
	}
	for _, tt := range tests {
		if r := mustSend(t, p, tt.path, calling("eth_blockNumber"), tt.headers...); r.status != tt.want {
			t.Errorf("%s: %d %s", tt.name, r.status, r.body)
		}
	}
	s := p.Stats()
	if s.Unauthorized != 1 || s.Tries() != 5 || s.Accounts[0].Units != 20 || s.Accounts[1].Units != 10 || s.Accounts[2].Units != 20 {
		t.Errorf("%+v", s)
	}
}

// TestRefusedAsPublished exhausts an account, and then another of the same provider has all of its own.
func TestRefusedAsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(t, Config{RetryAfter: true, Accounts: []Account{{Name: "a", Keys: []string{"k1", "k2"}}, {Name: "b", Keys: []string{"k3"}}}})
		for i := range 250 { // 5,000 units
			if r := mustSend(t, p, []string{"/v2/k1", "/v2/k2"}[i%2], calling("eth_getBalance")); r.status != 200 {
				t.Fatalf("call %d: %d %s", i, r.status, r.body)
			}
		}
		r := mustSend(t, p, "/v2/k2", calling("eth_blockNumber"))
		if r.status != 429 || r.header.Get("Retry-After") != "10" || r.class() != "rate" || !strings.HasPrefix(r.body, `{"jsonrpc":"2.0","id":7,"error":{"code":429,"message":"Your app has exceeded its compute units per second capacity.`) {
			t.Errorf("%d %v %s", r.status, r.header, r.body)
		}
		if r := mustSend(t, p, "/v2/k1", calling("eth_chainId")); r.status != 200 {
			t.Errorf("a free call: %d %s", r.status, r.body)
		}
		if r := mustSend(t, p, "/v2/k3", calling("eth_blockNumber")); r.status != 200 {
			t.Errorf("another account: %d %s", r.status, r.body)
		}
		time.Sleep(span)
		if r := mustSend(t, p, "/v2/k1", calling("eth_blockNumber")); r.status != 200 {
			t.Errorf("after Retry-After: %d %s", r.status, r.body)
		}
		s := p.Stats()
		a, k1, k2 := s.Accounts[0], s.Keys[0], s.Keys[1]
		if a.Units != 5010 || a.MaxUnits10s != 5000 || k2.Total.Refused["rate"] != 1 || k1.Early != 1 || k1.Methods["eth_getBalance"].Units != 2500 || s.Methods["eth_getBalance"].Served != 250 {
			t.Errorf("%+v", s)
		}
		wantConsistent(t, s)
	})
}

// wantConsistent checks that every call is in one place, and that keys, methods and accounts have the same units.
func wantConsistent(t testing.TB, s Stats) {
	t.Helper()
	var byMethod Counts
	for _, m := range s.Methods {
		byMethod.add(m)
	}
	var charged, refused int64
	for _, a := range s.Accounts {
		charged += a.Units
	}
	for _, n := range s.Total.Refused {
		refused += n
	}
	if s.Total.Units != charged || byMethod.Units != charged || byMethod.Received != s.Total.Received {
		t.Errorf("accounts were charged %d: %+v", charged, s)
	}
	if s.Total.Received != s.Total.Served+refused+s.Total.Failed {
		t.Errorf("%d calls were refused: %+v", refused, s.Total)
	}
}

func TestGenericLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(t, Config{Preset: Generic, Rate: 5, PerMinute: 12, RetryAfter: true})
		burst := func(want int, retryAfter string) {
			t.Helper()
			for i := range want + 1 {
				r := mustSend(t, p, "/", calling("eth_call"))
				switch {
				case i < want && r.status != 200:
					t.Errorf("call %d: %d %s", i, r.status, r.body)
				case i == want && (r.status != 429 || r.class() != "rate" || r.header.Get("Retry-After") != retryAfter):
					t.Errorf("call %d: %d %v", i, r.status, r.header)
				}
			}
		}
		burst(5, "1")
		time.Sleep(second)
		burst(5, "1")
		time.Sleep(second)
		burst(2, "58")
		time.Sleep(58 * second)
		burst(5, "1")
		wantConsistent(t, p.Stats())
	})
}

func TestBatches(t *testing.T) {
	three := `[{"id":1,"method":"eth_blockNumber"},{"method":"eth_blockNumber"},{"id":"x","method":"eth_nothing"}]`
	tests := []struct {
		name   string
		config Config
		body   string
		status int
		want   []string // parts of the body, in their order
		units  int64
	}{
		{"in order, without the notification", Config{}, three, 200, []string{`[{"jsonrpc":"2.0","id":1,"result"`, `},{"jsonrpc":"2.0","id":"x","error":{"code":-32601`}, 40},
		{"a notification", Config{}, `{"method":"eth_blockNumber"}`, 204, nil, 10},
		{"notifications", Config{}, `[{"method":"eth_blockNumber"}]`, 204, nil, 10},
		{"refused as a whole", Config{Rate: 5}, batch("eth_getBalance", 3), 400, []string{"costs 60 units, and the account has 50 at once"}, 0},
		{"its calls one by one", Config{Rate: 5, PartialBatches: true}, batch("eth_getBalance", 3), 200, []string{`"id":1,"result"`, `"id":2,"error":{"code":429,`}, 40},
		{"one call that is too costly", Config{Rate: 5, PartialBatches: true}, batch("eth_getLogs", 2), 400, []string{"costs 60 units"}, 0},
		{"100 calls", Config{}, batch("eth_chainId", 100), 200, []string{`"id":99,`}, 0},
		{"101 calls", Config{}, batch("eth_chainId", 101), 400, []string{`"code":-32600`, "100"}, 0},
		{"3 calls of 2", Config{MaxBatch: 2}, batch("eth_chainId", 3), 400, []string{`"code":-32600`, "2 calls"}, 0},
		{"none", Config{}, `[]`, 400, []string{`"code":-32600`}, 0},
		{"nested", Config{}, `[[{"id":1,"method":"eth_chainId"}]]`, 400, []string{`"code":-32600`}, 0},
		{"no JSON", Config{}, `{`, 400, []string{`"id":null,"error":{"code":-32700`}, 0},
		{"too long", Config{}, `{"id":1,"method":"` + strings.Repeat("a", MaxBody) + `"}`, 413, []string{`"code":-32600`}, 0},
		{"a duplicate method", Config{}, `{"id":1,"method":"eth_chainId","Method":"eth_call"}`, 400, []string{`"code":-32600`}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newProvider(t, tt.config)
			r := mustSend(t, p, "/v2/demo", tt.body)
			rest := r.body
			for _, want := range tt.want {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Errorf("%s is not in %s", want, rest)
				}
				rest = after
			}
			s := p.Stats()
			if r.status != tt.status || s.Total.Units != tt.units || (r.status >= 400) != (s.Malformed == 1) {
				t.Errorf("%d %.200s, %+v", r.status, r.body, s)
			}
			wantConsistent(t, s)
		})
	}
}

func TestPartialBatches(t *testing.T) {
	for _, partial := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newProvider(t, Config{Rate: 10, PartialBatches: partial})
			mustSend(t, p, "/v2/demo", calling("eth_getLogs", map[string]string{})) // 60 of 100
			r := mustSend(t, p, "/v2/demo", batch("eth_getBalance", 3))
			s := p.Stats().Methods["eth_getBalance"]
			if r.class() != "rate" {
				t.Errorf("partial %v: %d %s", partial, r.status, r.body)
			}
			wantStatus, wantServed := 429, int64(0)
			if partial {
				wantStatus, wantServed = 200, 2
			}
			if r.status != wantStatus || s.Served != wantServed || s.Refused["rate"] != 3-wantServed || s.Units != 20*wantServed {
				t.Errorf("partial %v: %d %s, %+v", partial, r.status, r.body, s)
			}
			wantConsistent(t, p.Stats())
		})
	}
}

// TestManyClients calls from many goroutines under the race detector: what was served is what the limits admit.
func TestManyClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(t, Config{Accounts: []Account{{Name: "a", Keys: []string{"k1", "k2"}, Rate: 100}}, Latency: 50 * time.Millisecond})
		var clients sync.WaitGroup
		for i := range 16 {
			clients.Go(func() {
				for range 30 {
					_, _ = send(p, []string{"/v2/k1", "/v2/k2"}[i%2], calling("eth_blockNumber"))
				}
			})
		}
		clients.Wait() // after 1.5 s
		s := p.Stats()
		if s.Total.Received != 480 || s.Accounts[0].Units != 1000 || s.Total.Served != 100 {
			t.Errorf("%+v", s)
		}
		wantConsistent(t, s)
	})
}

func TestServer(t *testing.T) {
	server := httptest.NewServer(newProvider(t, Config{}))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	resp, err := http.Get(server.URL + "/v2/demo")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", resp.StatusCode)
	}
}

func TestNewRefuses(t *testing.T) {
	tests := []struct {
		config Config
		want   string
	}{
		{Config{Preset: "infura"}, `mockrpc: Preset "infura": there are alchemy and generic`},
		{Config{Rate: -1}, "mockrpc: Rate -1: must be between 0 and 100000"},
		{Config{MaxBatch: 101}, "mockrpc: MaxBatch 101: must be between 0 and 100"},
		{Config{BlockTime: 1}, "mockrpc: BlockTime 1ns: must be at least 1ms"},
		{Config{Latency: -1}, "mockrpc: Latency -1ns: must be between 0 and 10m0s"},
		{Config{FirstBlock: maxBlock + 1}, "mockrpc: FirstBlock 9007199254740993: must be at most 9007199254740992"},
		{Config{Accounts: []Account{{Name: "a"}}}, "mockrpc: Accounts[0].Keys: an account needs a key"},
		{Config{Accounts: []Account{{Keys: []string{"k"}}}}, `mockrpc: Accounts[0].Name "": must be a name that no other account has`},
		{Config{Accounts: []Account{{Name: "a", Keys: []string{"k", "k"}}}}, `mockrpc: Accounts[0].Keys[1] "k": is a key of account "a" already`},
		{Config{Accounts: []Account{{Name: "a", Keys: []string{"a/b"}}}}, `mockrpc: Accounts[0].Keys[0] "a/b": a key has up to 64 of a-z A-Z 0-9 _ . -`},
		{Config{Accounts: []Account{{Name: "a", Keys: []string{"k"}, PerMinute: 5}}}, "mockrpc: Accounts[0].PerMinute 5: is for the preset generic: leave it out"},
	}
	for _, tt := range tests {
		if _, err := New(tt.config); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v, want %s", err, tt.want)
		}
	}
}

func TestClockIsInjected(t *testing.T) {
	now := time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)
	p := newProvider(t, Config{Rate: 1, Now: func() time.Time { return now }})
	ask := func() int { return mustSend(t, p, "/v2/demo", calling("eth_blockNumber")).status }
	if a, b := ask(), ask(); a != 200 || b != 429 {
		t.Errorf("%d and %d", a, b)
	}
	now = now.Add(-time.Hour) // which is no time that passes
	if a := ask(); a != 429 {
		t.Errorf("%d after the clock went back", a)
	}
	now = now.Add(time.Hour + span)
	if a := ask(); a != 200 {
		t.Errorf("%d after ten seconds", a)
	}
}

// Providers that have started at different times agree about the newest block and its time, and it never goes back.
func TestProvidersAgreeAboutTheHead(t *testing.T) {
	now := time.Date(2026, 11, 18, 12, 0, 7, 0, time.UTC)
	clock := func() time.Time { return now }
	first := newProvider(t, Config{Rate: MaxRate, Now: clock})
	heads := func(p *Provider) (head uint64, made int64) {
		t.Helper()
		var block struct {
			Result struct{ Number, Timestamp string }
		}
		r := mustSend(t, p, "/v2/demo", calling("eth_getBlockByNumber", "latest", false))
		if err := json.Unmarshal([]byte(r.body), &block); err != nil {
			t.Fatal(err, r.body)
		}
		if _, err := fmt.Sscanf(block.Result.Number+" "+block.Result.Timestamp, "0x%x 0x%x", &head, &made); err != nil {
			t.Fatal(err, r.body)
		}
		return head, made
	}
	for _, step := range []time.Duration{0, 4 * time.Second, time.Second, 13 * time.Hour} { // to :11, to :12, far
		now = now.Add(step)
		a, madeA := heads(first)
		b, madeB := heads(newProvider(t, Config{Rate: MaxRate, Now: clock}))
		want := now.Unix() / 12
		if int64(a) != want || b != a || madeA != want*12 || madeB != madeA {
			t.Errorf("%v: blocks %d of %d and %d of %d, want %d", now, a, madeA, b, madeB, want)
		}
	}
	before, _ := heads(first)
	now = now.Add(-time.Hour)
	if after, _ := heads(first); after != before {
		t.Errorf("block %d after %d", after, before)
	}
}
