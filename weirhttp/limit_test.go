package weirhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/internal/golden"
	"github.com/weirlimit/weir/store/memstore"
)

var proxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}

// raced says whether the race detector is on.
func raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func newTable(t testing.TB) *memstore.Table {
	t.Helper()
	table, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func policy(t testing.TB, name string, limits ...weir.Limit) *weir.Policy {
	t.Helper()
	p, err := weir.NewPolicy(name, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// perHour is a limit that gives nothing back during a test.
func perHour(n int64) weir.Limit { return weir.Limit{Rate: n, Per: weir.Every(time.Hour)} }

// request returns one with header fields, "Name: value".
func request(method, path string, fields ...string) *http.Request {
	r := httptest.NewRequest(method, path, nil)
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// resolver reads RFC 7239.
func resolver(t testing.TB) *clientip.Resolver {
	t.Helper()
	r, err := clientip.New(clientip.Config{Header: "forwarded", Trusted: proxies})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func from(addr string, r *http.Request) *http.Request {
	r.RemoteAddr = addr
	return r
}

// send returns the response to a request.
func send(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// statuses sends the requests one after the other, and returns "200 200 429".
func statuses(h http.Handler, requests ...*http.Request) string {
	var codes []string
	for _, r := range requests {
		codes = append(codes, fmt.Sprint(send(h, r).Code))
	}
	return strings.Join(codes, " ")
}

// dump returns a response as text, with the fields sorted.
func dump(w *httptest.ResponseRecorder) string {
	var b strings.Builder
	fmt.Fprintln(&b, w.Code, http.StatusText(w.Code))
	for _, name := range slices.Sorted(maps.Keys(w.Header())) {
		for _, value := range w.Header()[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	fmt.Fprintf(&b, "\n%s", w.Body)
	return b.String()
}

// fake is a limiter whose decisions are given. It notes what was charged.
type fake struct {
	decisions []weir.Decision // one for each rule
	err       error
	charges   []weir.Charge // of the last call; the keys are copies
	batches   int
}

func (f *fake) Take(_ context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	f.charges = []weir.Charge{{Policy: p, Key: strings.Clone(key), Cost: cost}}
	if f.err != nil {
		return weir.Decision{}, f.err
	}
	return f.decisions[0], nil
}

func (f *fake) Do(_ context.Context, b *weir.Batch) error {
	f.batches++
	f.charges = nil
	for _, c := range b.Charges {
		f.charges = append(f.charges, weir.Charge{Policy: c.Policy, Key: strings.Clone(c.Key), Cost: c.Cost})
	}
	b.Decisions = append(b.Decisions[:0], f.decisions...)
	return f.err
}

func (f *fake) Set(context.Context, *weir.Policy, *weir.Policy) error { return nil }

// keys returns the keys of the last call.
func (f *fake) keys() string {
	var keys []string
	for _, c := range f.charges {
		keys = append(keys, c.Key)
	}
	return strings.Join(keys, " | ")
}

func admitted(limit, remaining int64) weir.Decision {
	return weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: limit, Remaining: remaining, ResetAfter: time.Second}
}

func refused(limit int64, retry time.Duration) weir.Decision {
	return weir.Decision{Reason: weir.Exhausted, Limit: limit, RetryAfter: retry, ResetAfter: retry}
}

// TestWire holds complete responses.
func TestWire(t *testing.T) {
	key := policy(t, "per-key", weir.PerMinute(100), weir.Limit{Name: "daily", Rate: 1000, Per: weir.Calendar(weir.Day, nil)})
	ip := policy(t, "per-ip", weir.PerSecond(10))
	byKey, byIP := By(key, Header("X-Api-Key")), By(ip, ClientIP())
	daily := func(d weir.Decision) weir.Decision { d.By = 1; return d }
	fits := weir.Decision{Limit: 10, Remaining: 3, ResetAfter: time.Second}
	tests := []struct {
		name      string
		options   []Option
		request   *http.Request
		decisions []weir.Decision
	}{
		{"admitted", []Option{byIP}, request("GET", "/"), []weir.Decision{admitted(10, 9)}},
		{"admitted by two", []Option{byKey, byIP}, request("GET", "/"), []weir.Decision{admitted(100, 42), admitted(10, 9)}},
		{"admitted by two, the other is tighter", []Option{byKey, byIP}, request("GET", "/"), []weir.Decision{daily(admitted(1000, 3)), admitted(10, 9)}},
		{"admitted by two, as many remain", []Option{byIP, byKey}, request("GET", "/"), []weir.Decision{admitted(10, 9), {Allowed: true, Reason: weir.Admitted, By: 1, Limit: 1000, Remaining: 9, ResetAfter: time.Hour}}},
		{"admitted, one not counted", []Option{byIP, byKey}, request("GET", "/"), []weir.Decision{{Allowed: true, Reason: weir.Admitted}, admitted(100, 50)}},
		{"admitted, the tightest is hidden", []Option{By(ip, ClientIP(), Hide()), byKey}, request("GET", "/"), []weir.Decision{admitted(10, 1), daily(admitted(1000, 500))}},
		{"admitted, all hidden", []Option{By(ip, ClientIP(), Hide())}, request("GET", "/"), []weir.Decision{admitted(10, 1)}},
		{"admitted, cors", []Option{byIP}, request("GET", "/", "Origin: https://a.example"), []weir.Decision{admitted(10, 9)}},
		{"admitted, cors, github", []Option{byIP, LegacyHeaders(LegacyGitHub)}, request("GET", "/", "Origin: https://a.example"), []weir.Decision{{Allowed: true, Reason: weir.Admitted, Limit: 10, Remaining: 4, ResetAfter: weir.Never}}},
		{"admitted, delta", []Option{byIP, LegacyHeaders(LegacyDelta)}, request("GET", "/"), []weir.Decision{admitted(10, 4)}},
		{"admitted, delta, hidden", []Option{By(ip, ClientIP(), Hide()), LegacyHeaders(LegacyDelta)}, request("GET", "/"), []weir.Decision{admitted(10, 4)}},
		{"refused", []Option{byIP}, request("POST", "/"), []weir.Decision{refused(10, 6200*time.Millisecond)}},
		{"refused, cors", []Option{byIP}, request("GET", "/", "Origin: https://a.example"), []weir.Decision{refused(10, time.Second)}},
		{"refused by the second", []Option{byKey, byIP}, request("GET", "/"), []weir.Decision{{Limit: 100, Remaining: 10}, refused(10, time.Second)}},
		{"refused by the first", []Option{byKey, byIP}, request("GET", "/"), []weir.Decision{daily(refused(1000, time.Hour)), fits}},
		{"refused by both", []Option{byKey, byIP}, request("GET", "/"), []weir.Decision{daily(refused(1000, time.Second)), refused(10, 2*time.Second)}},
		{"refused, hidden", []Option{byKey, By(ip, ClientIP(), Hide())}, request("GET", "/"), []weir.Decision{{Limit: 100, Remaining: 10}, refused(10, 90*time.Second)}},
		{"refused, hidden and not", []Option{byKey, By(ip, ClientIP(), Hide())}, request("GET", "/"), []weir.Decision{refused(100, 91*time.Second), refused(10, 90*time.Second)}},
		{"refused, hidden, blocked", []Option{By(ip, ClientIP(), Hide())}, request("GET", "/"), []weir.Decision{{Reason: weir.Blocked, RetryAfter: weir.Never}}},
		{"refused, too costly", []Option{byIP}, request("GET", "/"), []weir.Decision{{Reason: weir.TooCostly, Limit: 10, Remaining: 10, RetryAfter: weir.Never}}},
		{"refused, store down", []Option{byIP}, request("GET", "/"), []weir.Decision{{Reason: weir.StoreDown, RetryAfter: time.Second}}},
		{"refused, github", []Option{byIP, LegacyHeaders(LegacyGitHub)}, request("GET", "/"), []weir.Decision{{Reason: weir.Exhausted, Limit: 10, RetryAfter: time.Second, ResetAfter: weir.Never}}},
		{"refused by a limit that was set later", []Option{byIP, byKey}, request("GET", "/"), []weir.Decision{{Reason: weir.Exhausted, By: 2, Limit: 10, RetryAfter: time.Second}, {Limit: 100}}},
		{"no decision for any", []Option{byIP, byKey}, request("GET", "/"), []weir.Decision{{}, {}}},
	}
	var b strings.Builder
	for _, tt := range tests {
		h := Limit(&fake{decisions: tt.decisions}, tt.options...)(bare)
		fmt.Fprintf(&b, "# %s\n%s\n", tt.name, dump(send(h, tt.request)))
	}
	w := send(Limit(&fake{err: weir.ErrUnavailable}, byIP)(bare), request("GET", "/"))
	fmt.Fprintf(&b, "# error\n%s\n", dump(w))
	golden.Check(t, "testdata/limit.txt", []byte(b.String()))
}

func TestKeys(t *testing.T) {
	type userKey struct{}
	user := Key(func(r *http.Request) string { u, _ := r.Context().Value(userKey{}).(string); return u })
	long := strings.Repeat("k", weir.MaxKeyBytes)
	as := func(u string) *http.Request {
		r := request("GET", "/")
		return r.WithContext(context.WithValue(r.Context(), userKey{}, u))
	}
	tests := []struct {
		name string
		key  KeyFunc
		r    *http.Request
		want string
	}{
		{"header", Header("x-API-key"), request("GET", "/", "X-Api-Key: abc"), "abc"},
		{"header, the first", Header("X-Api-Key"), request("GET", "/", "X-Api-Key: abc", "X-Api-Key: def"), "abc"},
		{"header, missing", Header("X-Api-Key"), request("GET", "/"), unknownKey},
		{"header, empty", Header("X-Api-Key"), request("GET", "/", "X-Api-Key: "), unknownKey},
		{"header, longest", Header("X-Api-Key"), request("GET", "/", "X-Api-Key: "+long), long},
		{"header, too long", Header("X-Api-Key"), request("GET", "/", "X-Api-Key: "+long+"k"), "a5de0e3c93b4322bf1d2e6cc13119219d665142374de7f2b06bae237759c73e2"},
		{"header, not utf-8", Header("X-Api-Key"), request("GET", "/", "X-Api-Key: \xff"), "a8100ae6aa1940d0b663bb31cd466142ebbdbd5187131b92d93818987832eb89"},
		{"host", Header("host"), request("GET", "http://a.example/"), "a.example"},
		{"address", ClientIP(), from("192.0.2.1:99", request("GET", "/", "X-Forwarded-For: 198.51.100.1")), "192.0.2.1"},
		{"address, ipv6", ClientIP(), from("[2001:db8:1:2:3:4:5:6]:99", request("GET", "/")), "2001:db8:1:2::/64"},
		{"address, mapped", ClientIP(), from("[::ffff:192.0.2.1]:99", request("GET", "/")), "192.0.2.1"},
		{"address, zero", ClientIP(), from("0.0.0.0:0", request("GET", "/")), "0.0.0.0"},
		{"address, none", ClientIP(), from("", request("GET", "/")), unknownKey},
		{"address, unix", ClientIP(), from("@", request("GET", "/", "X-Forwarded-For: 198.51.100.1")), unknownKey},
		{"address, proxied", ClientIP(proxies...), from("10.0.0.1:99", request("GET", "/", "X-Forwarded-For: 198.51.100.1, 192.0.2.7, 10.0.0.2")), "192.0.2.7"},
		{"address, not a proxy", ClientIP(proxies...), from("192.0.2.1:99", request("GET", "/", "X-Forwarded-For: 198.51.100.1")), "192.0.2.1"},
		{"forwarded", ClientIPFrom(resolver(t)), from("10.0.0.1:99", request("GET", "/", "Forwarded: for=192.0.2.7", "X-Forwarded-For: 198.51.100.1")), "192.0.2.7"},
		{"everyone", Everyone(), request("GET", "/"), "everyone"},
		{"function", user, as("alice"), "alice"},
		{"function, none", user, as(""), unknownKey},
		{"one's own memory", func(*http.Request, []byte) []byte { return []byte("mine") }, request("GET", "/"), "mine"},
		{"nil", func(*http.Request, []byte) []byte { return nil }, request("GET", "/"), unknownKey},
	}
	p := policy(t, "p", perHour(1))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{decisions: []weir.Decision{admitted(1, 1), admitted(1, 1), admitted(1, 1)}}
			send(Limit(f, By(p, tt.key))(bare), tt.r)
			if got := f.keys(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			one := f.keys()
			q, s := policy(t, "q", perHour(1)), policy(t, "s", perHour(1))
			send(Limit(f, By(p, tt.key), By(q, tt.key), By(s, Everyone()))(bare), tt.r)
			if got, want := f.keys(), one+" | "+one+" | everyone"; got != want {
				t.Errorf("three rules: got %q, want %q", got, want)
			}
		})
	}
}

// FuzzKey gives any header to the key functions. Equal values get equal keys, different
// ones different keys, and every limiter accepts them.
func FuzzKey(f *testing.F) {
	f.Add("abc", "abd")
	f.Add("", "\xff")
	f.Add(strings.Repeat("k", 300), strings.Repeat("k", 301))
	f.Fuzz(func(t *testing.T, one, two string) {
		keyOf := func(value string, room int) string {
			r := &http.Request{Header: http.Header{"X-Api-Key": {value}}}
			_, key := appendKey(make([]byte, room, room+100), Header("X-Api-Key"), r)
			if key == "" || len(key) > weir.MaxKeyBytes || !isUTF8(key) {
				t.Errorf("%q: key %q", value, key)
			}
			return key
		}
		a, b := keyOf(one, 0), keyOf(two, 7)
		if (a == b) != (one == two) && one != unknownKey && two != unknownKey {
			t.Errorf("%q and %q: keys %q and %q", one, two, a, b)
		}
	})
}

func isUTF8(s string) bool { return strings.ToValidUTF8(s, "") == s }

func TestCost(t *testing.T) {
	table, p := newTable(t), policy(t, "p", perHour(10))
	h := Limit(table, By(p, Everyone()), Cost(func(r *http.Request) int64 { return int64(len(r.URL.Path)) }))(bare)
	for _, tt := range []struct{ path, want string }{
		{"/23456", `"p";r=4`}, {"/2345", `"p";r=4;t=360`}, {"/234", `"p";r=0;t=360`}, {"/23456789abc", `"p";r=0`},
	} {
		if got := send(h, request("GET", tt.path)).Header().Get("RateLimit"); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.path, got, tt.want)
		}
	}
	two := &fake{decisions: []weir.Decision{admitted(1, 1), admitted(1, 1)}}
	send(Limit(two, By(p, Everyone()), By(policy(t, "q", perHour(1)), Everyone()), Cost(func(*http.Request) int64 { return 7 }))(bare), request("GET", "/"))
	if two.batches != 1 || two.charges[0].Cost != 7 || two.charges[1].Cost != 7 {
		t.Errorf("%d batches, charged %+v", two.batches, two.charges)
	}
	bad := Limit(table, By(p, Everyone()), Cost(func(r *http.Request) int64 { return -1 }))(bare)
	if got := send(bad, request("GET", "/")).Code; got != 503 {
		t.Errorf("a negative cost: %d", got)
	}
}

// TestFree sends each request five times where one is allowed.
func TestFree(t *testing.T) {
	const origin, wants = "Origin: https://a.example", "Access-Control-Request-Method: PUT"
	skip := Skip(func(r *http.Request) bool { return r.URL.Path == "/static" })
	tests := []struct {
		name    string
		r       *http.Request
		options []Option
		free    bool
	}{
		{"get", request("GET", "/"), nil, false},
		{"preflight", request("OPTIONS", "/", origin, wants), nil, true},
		{"preflight, charged", request("OPTIONS", "/", origin, wants), []Option{ChargeAll()}, false},
		{"options without origin", request("OPTIONS", "/", wants), nil, false},
		{"options without a method", request("OPTIONS", "/", origin), nil, false},
		{"put like a preflight", request("PUT", "/", origin, wants), nil, false},
		{"healthz", request("GET", "/healthz"), nil, true},
		{"readyz", request("GET", "/readyz"), nil, true},
		{"livez", request("HEAD", "/livez"), nil, true},
		{"health", request("GET", "/health?full=1"), nil, true},
		{"health, charged", request("GET", "/health"), []Option{ChargeAll()}, false},
		{"health, posted", request("POST", "/health"), nil, false},
		{"gRPC health", request("POST", "/grpc.health.v1.Health/Check"), nil, true},
		{"below health", request("GET", "/health/"), nil, false},
		{"above health", request("GET", "/v1/health"), nil, false},
		{"skipped", request("GET", "/static"), []Option{skip}, true},
		{"not skipped", request("GET", "/statics"), []Option{skip}, false},
		{"skipped, all else charged", request("GET", "/static"), []Option{skip, ChargeAll()}, true},
		{"health, with skip", request("GET", "/health"), []Option{skip}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := policy(t, "p", perHour(1))
			h := Limit(newTable(t), append(tt.options, By(p, Everyone()))...)(bare)
			want := "200 429 429 429 429"
			if tt.free {
				want = "200 200 200 200 200"
			}
			if got := statuses(h, tt.r, tt.r, tt.r, tt.r, tt.r); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if got := send(h, tt.r).Header().Get("RateLimit-Policy") == ""; got != tt.free {
				t.Errorf("no header fields: %v, want %v", got, tt.free)
			}
		})
	}
}

func TestRefuse(t *testing.T) {
	p, hidden := policy(t, "p", perHour(1)), policy(t, "hidden", perHour(1))
	var got Denial
	refuse := Refuse(func(w http.ResponseWriter, _ *http.Request, d Denial) {
		got = d
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "<p>later")
	})
	h := Limit(&fake{decisions: []weir.Decision{refused(1, time.Minute)}}, By(p, Everyone()), refuse)(bare)
	want := `418 I'm a teapot
Cache-Control: no-store
Content-Type: text/html
Ratelimit: "p";r=0;t=60
Ratelimit-Policy: "p";q=1;w=3600
Retry-After: 60

<p>later`
	if text := dump(send(h, request("GET", "/"))); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	if got.Policy != p || got.Hidden || got.Err != nil || got.Decision != refused(1, time.Minute) || got.Problem.Status != 429 {
		t.Errorf("denial %+v", got)
	}
	send(Limit(&fake{decisions: []weir.Decision{refused(1, 1)}}, By(hidden, Everyone(), Hide()), refuse)(bare), request("GET", "/"))
	if got.Policy != hidden || !got.Hidden {
		t.Errorf("hidden denial %+v", got)
	}
	send(Limit(&fake{err: weir.ErrBusy}, By(p, Everyone()), refuse)(bare), request("GET", "/"))
	if got.Policy != nil || !errors.Is(got.Err, weir.ErrBusy) || got.Problem.Status != 503 {
		t.Errorf("denial after an error %+v", got)
	}
}

func TestOnError(t *testing.T) {
	p, q := policy(t, "p", perHour(1)), policy(t, "q", perHour(1))
	f := &fake{err: weir.ErrUnavailable}
	for _, pass := range []bool{false, true} {
		for _, rules := range [][]Option{{By(p, Everyone())}, {By(p, Everyone()), By(q, Everyone())}} {
			var got error
			on := OnError(func(r *http.Request, err error) bool { got = err; return pass })
			w := send(Limit(f, append(rules, on)...)(bare), request("GET", "/"))
			want := map[bool]int{false: 503, true: 200}[pass]
			if w.Code != want || !errors.Is(got, weir.ErrUnavailable) {
				t.Errorf("pass %v: status %d, want %d; error %v", pass, w.Code, want, got)
			}
			if w.Header().Get("RateLimit") != "" {
				t.Errorf("pass %v: RateLimit: %s", pass, w.Header().Get("RateLimit"))
			}
		}
	}
}

// TestExpose has middleware for CORS around Limit and handlers that know of CORS inside.
func TestExpose(t *testing.T) {
	const ours = "RateLimit-Policy, RateLimit, Retry-After"
	p := policy(t, "p", weir.PerSecond(1000))
	limit := Limit(newTable(t), By(p, Everyone()))
	set := func(values ...string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for _, v := range values {
				w.Header().Add("Access-Control-Expose-Headers", v)
			}
		})
	}
	before := func(h http.Handler, values ...string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			set(values...).ServeHTTP(w, r)
			h.ServeHTTP(w, r)
		})
	}
	tests := []struct {
		name string
		h    http.Handler
		want []string
	}{
		{"alone", limit(bare), []string{ours}},
		{"set before", before(limit(bare), "X-A", "X-B"), []string{"X-A", "X-B", ours}},
		{"added inside", limit(set("X-A")), []string{ours, "X-A"}},
		{"nested", limit(Limit(newTable(t), By(p, Everyone()))(bare)), []string{ours}},
		{"alone again: nobody has written to what is shared", limit(bare), []string{ours}},
	}
	for _, tt := range tests {
		w := send(tt.h, request("GET", "/", "Origin: https://a.example"))
		if got := w.Header()["Access-Control-Expose-Headers"]; !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
		if got := send(limit(bare), request("GET", "/")).Header()["Access-Control-Expose-Headers"]; got != nil {
			t.Errorf("without an origin: %q", got)
		}
	}
}

// unread fails a test that reads it.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) { u.t.Error("the body was read"); return 0, io.EOF }
func (u unread) Close() error             { u.t.Error("the body was closed"); return nil }

func TestBodyIsLeftUnread(t *testing.T) {
	p, q := policy(t, "p", perHour(1)), policy(t, "q", perHour(1))
	for _, f := range []*fake{{decisions: []weir.Decision{refused(1, 1)}}, {err: weir.ErrBusy}} {
		r := httptest.NewRequest("POST", "/", nil)
		r.Body, r.ContentLength = unread{t}, 1<<40
		send(Limit(f, By(p, Everyone()))(bare), r)
		f.decisions = append(f.decisions, refused(1, 1))
		send(Limit(f, By(p, ClientIP()), By(q, Header("X-Api-Key")))(bare), r)
	}
}

// TestNoContinue has a client ask before it sends a body: a refusal comes instead of 100.
func TestNoContinue(t *testing.T) {
	p := policy(t, "p", perHour(1))
	h := Limit(&fake{decisions: []weir.Decision{refused(1, time.Second)}}, By(p, Everyone()))(bare)
	server := httptest.NewServer(h)
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n")
	reply, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(reply), "HTTP/1.1 429 ") {
		t.Errorf("got %.100q, %v", reply, err)
	}
}

// TestWriterIsPassedThrough uses what only the server's own ResponseWriter can do.
func TestWriterIsPassedThrough(t *testing.T) {
	p := policy(t, "p", weir.PerSecond(1000))
	problems := make(chan error, 10)
	server := httptest.NewServer(Limit(newTable(t), By(p, ClientIP()))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		_, flusher := w.(http.Flusher)
		_, hijacker := w.(http.Hijacker)
		_, readerFrom := w.(io.ReaderFrom)
		problems <- errors.Join(c.SetWriteDeadline(time.Now().Add(time.Minute)), c.EnableFullDuplex(), c.Flush())
		if !flusher || !hijacker || !readerFrom {
			problems <- fmt.Errorf("flusher %v, hijacker %v, reader from %v", flusher, hijacker, readerFrom)
		}
		close(problems)
	})))
	defer server.Close()
	resp, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("RateLimit"); got != `"p";r=999` {
		t.Errorf("RateLimit: %s", got)
	}
	for err := range problems {
		if err != nil {
			t.Error(err)
		}
	}
}

// TestAllOrNothing: what one rule refuses is not charged to the other.
func TestAllOrNothing(t *testing.T) {
	key, ip := policy(t, "key", perHour(3)), policy(t, "ip", perHour(5))
	h := Limit(newTable(t), By(key, Header("X-Api-Key")), By(ip, ClientIP()))(bare)
	a, b := request("GET", "/", "X-Api-Key: a"), request("GET", "/", "X-Api-Key: b")
	if got, want := statuses(h, a, a, a, a, a, a, b, b, b), "200 200 200 429 429 429 200 200 429"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := send(h, from("192.0.2.99:1", request("GET", "/", "X-Api-Key: b"))).Header().Get("RateLimit"); got != `"key";r=0;t=1200` {
		t.Errorf("the address refused two of b, which has %s", got)
	}
}

// TestRefill: a client that waits for Retry-After is served.
func TestRefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy(t, "p", weir.Limit{Rate: 10, Per: weir.Every(time.Minute), Burst: 2})
		h := Limit(newTable(t), By(p, ClientIP()))(bare)
		r := request("GET", "/")
		if got := statuses(h, r, r, r); got != "200 200 429" {
			t.Fatal(got)
		}
		time.Sleep(100 * time.Millisecond) // virtual
		w := send(h, r)
		if got := w.Header().Get("Retry-After"); got != "6" {
			t.Fatalf("Retry-After: %s, want 5.9 s rounded up", got)
		}
		time.Sleep(6 * time.Second)
		if got := statuses(h, r, r); got != "200 429" {
			t.Error(got)
		}
	})
}

// TestManyAtOnce grants exactly as many as the limits allow to goroutines that share keys.
func TestManyAtOnce(t *testing.T) {
	const perKey, perIP, keys, goroutines, each = 150, 400, 4, 64, 50
	key, ip := policy(t, "key", perHour(perKey)), policy(t, "ip", perHour(perIP))
	table := newTable(t)
	var served atomic.Int64
	count := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) })
	both := Limit(table, By(key, Header("X-Api-Key")), By(ip, ClientIP()))(count)
	var wg sync.WaitGroup
	var allowed, denied [keys]atomic.Int64
	for g := range goroutines {
		wg.Go(func() {
			r := request("GET", "/", fmt.Sprint("X-Api-Key: key", g%keys))
			for range each {
				switch w := send(both, r); {
				case w.Code == 200 && w.Header().Get("Retry-After") == "":
					allowed[g%keys].Add(1)
				case w.Code == 429 && w.Header().Get("Retry-After") != "":
					denied[g%keys].Add(1)
				default:
					t.Errorf("status %d, %v", w.Code, w.Header())
				}
			}
		})
	}
	wg.Wait()
	var all int64
	for i := range keys {
		n := allowed[i].Load()
		if all += n; n > perKey || n+denied[i].Load() != goroutines/keys*each {
			t.Errorf("key %d: %d allowed, %d denied", i, n, denied[i].Load())
		}
	}
	if all != perIP || served.Load() != perIP {
		t.Errorf("%d allowed, %d served, want exactly %d", all, served.Load(), perIP)
	}
}

// TestForgedAddresses: what an untrusted peer sends does not change its key, and neither
// does what a client sends before its proxies append the truth. Nor do the addresses of one network.
func TestForgedAddresses(t *testing.T) {
	const seed = 3
	rnd := rand.New(rand.NewPCG(seed, seed))
	p := policy(t, "p", perHour(1))
	f := &fake{decisions: []weir.Decision{admitted(1, 0)}}
	h := Limit(f, By(p, ClientIP(proxies...)))(bare)
	for i := range 1000 {
		forged := netip.AddrFrom4([4]byte{byte(rnd.Uint32()), byte(rnd.Uint32()), byte(rnd.Uint32()), byte(i)}).String()
		send(h, from("203.0.113.9:4711", request("GET", "/", "X-Forwarded-For: "+forged)))
		if f.keys() != "203.0.113.9" {
			t.Fatalf("seed %d: untrusted, %s: key %s", seed, forged, f.keys())
		}
		send(h, from("10.0.0.1:4711", request("GET", "/", "X-Forwarded-For: "+forged+", 203.0.113.9, 10.0.0.2")))
		if f.keys() != "203.0.113.9" {
			t.Fatalf("seed %d: leading, %s: key %s", seed, forged, f.keys())
		}
	}
	addr := netip.MustParseAddr("2001:db8:1:2::").As16()
	for i := range 1 << 16 {
		addr[8], addr[15] = byte(i>>8), byte(i)
		send(h, from("["+netip.AddrFrom16(addr).String()+"]:1", request("GET", "/")))
		if f.keys() != "2001:db8:1:2::/64" {
			t.Fatalf("%v: key %s", netip.AddrFrom16(addr), f.keys())
		}
	}
}

// TestRotatedKeys: a client that sends a new API key with every request gains nothing.
func TestRotatedKeys(t *testing.T) {
	key, ip := policy(t, "key", perHour(100)), policy(t, "ip", perHour(10))
	h := Limit(newTable(t), By(key, Header("X-Api-Key")), By(ip, ClientIP()))(bare)
	passed := 0
	for i := range 1000 {
		if send(h, request("GET", "/", fmt.Sprint("X-Api-Key: ", i))).Code == 200 {
			passed++
		}
	}
	if passed != 10 {
		t.Errorf("%d passed, want 10", passed)
	}
}

// TestUnknownShare: requests without a key are one client to the limiter.
func TestUnknownShare(t *testing.T) {
	p := policy(t, "p", perHour(2))
	h := Limit(newTable(t), By(p, Header("X-Api-Key")))(bare)
	a, b := from("192.0.2.1:1", request("GET", "/")), from("192.0.2.2:1", request("GET", "/", "X-Api-Key: "))
	if got := statuses(h, a, b, a, b, request("GET", "/", "X-Api-Key: k")); got != "200 200 429 429 200" {
		t.Error(got)
	}
}

// TestResponsesOfLimitDoNotShare keeps the headers and keys of one request while others are served.
func TestResponsesOfLimitDoNotShare(t *testing.T) {
	key, ip := policy(t, "key", perHour(1000)), policy(t, "ip", perHour(1000))
	h := Limit(newTable(t), By(key, Header("X-Api-Key")), By(ip, ClientIP()))(bare)
	first := send(h, request("GET", "/", "X-Api-Key: a"))
	first.Header().Add("RateLimit", "added")
	first.Header().Add("RateLimit-Policy", "added")
	for range 100 {
		send(h, request("GET", "/", "X-Api-Key: a"))
	}
	last := send(h, request("GET", "/", "X-Api-Key: a"))
	if got := first.Header()["Ratelimit"]; !slices.Equal(got, []string{`"key";r=999`, "added"}) {
		t.Errorf("first: %q", got)
	}
	if got := last.Header()["Ratelimit"]; !slices.Equal(got, []string{`"key";r=898`}) {
		t.Errorf("last: %q", got)
	}
	if got := last.Header()["Ratelimit-Policy"]; len(got) != 1 {
		t.Errorf("last: %q", got)
	}
}

func TestLimitPanics(t *testing.T) {
	p := policy(t, "p", perHour(1))
	slots := policy(t, "slots", weir.Limit{Rate: 1, Algorithm: weir.Concurrency})
	tests := []struct {
		want string
		call func()
	}{
		{"weirhttp: Limit: the limiter is nil", func() { Limit(nil, By(p, Everyone())) }},
		{"weirhttp: Limit: there is no rule; add weirhttp.By(policy, key)", func() { Limit(&fake{}) }},
		{"weirhttp: Limit: rule 1: the policy is nil", func() { Limit(&fake{}, By(p, Everyone()), By(nil, Everyone())) }},
		{`weirhttp: Limit: policy "p": the key function is nil`, func() { Limit(&fake{}, By(p, nil)) }},
		{`weirhttp: Limit: policy "slots" limits concurrency, which only Reserve can do`, func() { Limit(&fake{}, By(slots, Everyone())) }},
		{
			`weirhttp: Limit: policy "p" is in two rules, whose keys would share counters; make a policy for each`,
			func() { Limit(&fake{}, By(p, Everyone()), By(p, ClientIP())) },
		},
		{"weirhttp: Header: the name is empty", func() { Header("") }},
		{"weirhttp: Key: the function is nil", func() { Key(nil) }},
		{"weirhttp: ClientIPFrom: the resolver is nil", func() { ClientIPFrom(nil) }},
		{
			"weirhttp: ClientIP: clientip: trusted 0.0.0.0/0: is everybody, so that anybody could claim any address; name the proxies' networks",
			func() { ClientIP(netip.MustParsePrefix("0.0.0.0/0")) },
		},
	}
	for _, tt := range tests {
		func() {
			defer func() {
				if got := recover(); got != tt.want {
					t.Errorf("got  %v\nwant %s", got, tt.want)
				}
			}()
			tt.call()
		}()
	}
}
