//go:build linux

package server_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

var (
	nginx = &command{name: "nginx", args: func(dir, file string) []string {
		directives := "daemon off;"
		if os.Getuid() == 0 {
			directives += " user root;" // its worker could not get into the test's directory
		}
		return []string{"-p", dir, "-c", file, "-g", directives}
	}}
	caddy = &command{name: "caddy", args: func(_, file string) []string {
		return []string{"run", "--adapter", "caddyfile", "--config", file}
	}}
	haproxy = &command{name: "haproxy", also: []string{"weir.lua"}, args: func(_, file string) []string {
		return []string{"-db", "-f", file}
	}}
)

// The files of docs/integrations do, with the servers that they are for, what the README
// there says. Only the ports are others.
func TestProxies(t *testing.T) {
	for _, tt := range []struct {
		command *command
		file    string
		open    bool // what happens while weir is down
	}{
		{nginx, "nginx-open.conf", true},
		{nginx, "nginx-closed.conf", false},
		{caddy, "Caddyfile.open", true},
		{caddy, "Caddyfile.closed", false},
		{haproxy, "haproxy-open.cfg", true},
		{haproxy, "haproxy-closed.cfg", false},
	} {
		t.Run(tt.file, func(t *testing.T) {
			s := newSetup(t)
			s.run(tt.command, tt.file)
			s.steady("an admitted request", s.admits)
			s.steady("the limit", s.limits)
			s.steady("forged headers", s.ignoresForgery)
			s.steady("the application's own answers", s.passesAnswers)
			s.steady("an application that fails", s.asksOnce)
			s.steady("bodies", s.passesBodies)
			s.steady("one connection", s.keepsConnections)
			s.steady("questions that are hard to ask", s.asksAnyway)
			s.steady("attributes", s.tellsAttributes)

			down := s.passesWhileDown
			if !tt.open {
				down = s.refusesWhileDown
			}
			s.stopWeir()
			s.steady("weir is dead", down)
			for _, fault := range []struct {
				name string
				weir func() (stop func())
			}{
				{"weir hangs", s.hang},
				{"weir cannot decide", func() func() { return s.serve("8080", status(http.StatusServiceUnavailable)) }},
				{"weir fails", func() func() { return s.serve("8080", status(http.StatusInternalServerError)) }},
			} {
				stop := fault.weir()
				s.steady(fault.name, down)
				stop()
			}
			stop := s.serve("8080", status(http.StatusOK))
			s.steady("weir tells nothing but yes", s.passesUntold)
			stop()
			for _, code := range []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusNotFound, http.StatusMisdirectedRequest} {
				stop := s.serve("8080", status(code))
				s.steady("weir does not understand", s.refusesWhatIsWrong)
				stop()
			}
			s.startWeir()
			s.steady("weir is back", s.limits)
		})
	}
}

// status answers with a status that is no decision.
func status(code int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
}

// steady runs a check, with all limits unused, up to five times: a proxy gives weir 100 ms,
// which a busy machine may need for other things. What is wrong stays wrong.
func (s *setup) steady(what string, check func() error) {
	s.t.Helper()
	for try := 1; ; try++ {
		s.clock.advance(time.Minute)
		s.app.take()
		err := check()
		if err == nil {
			return
		}
		if try == 5 {
			s.t.Errorf("%s: %v", what, err)
			return
		}
		s.t.Logf("%s, try %d: %v", what, try, err)
	}
}

// A request that is admitted reaches the application as the client sent it, with the truth
// about the client. What names a user pays as that user.
func (s *setup) admits() error {
	ip := s.fresh()
	c := s.client(ip)
	a, err := c.get("/shop?a=b%20c", "Host", "shop.example", "X-Trace", "t1", "Authorization", "Bearer x", "Cookie", "a=b")
	if err != nil {
		return err
	}
	user, err := c.get("/", "X-Api-Key", "alice-demo-key")
	if err != nil {
		return err
	}
	unknown, err := c.get("/", "X-Api-Key", "wrong")
	if err != nil {
		return err
	}
	const policy = `"api";q=5;w=10`
	if err := errors.Join(
		a.is(200), a.has("RateLimit", `"api";r=4`, "RateLimit-Policy", policy, "Retry-After", ""),
		user.is(200), user.has("RateLimit", `"api";r=4`, "RateLimit-Policy", policy),
		unknown.is(200), unknown.has("RateLimit", `"api";r=3`),
	); err != nil {
		return err
	}
	got := s.app.take()
	if len(got) != 3 {
		return fmt.Errorf("%d requests reached the application", len(got))
	}
	if r := got[0]; r.method != "GET" || r.uri != "/shop?a=b%20c" || r.host != "shop.example" {
		return fmt.Errorf("the application got %+v", r)
	}
	want := func(r seen, name, value string) error {
		if v := strings.Join(r.header.Values(name), ", "); v != value {
			return fmt.Errorf("the application got %s: %q, want %q", name, v, value)
		}
		return nil
	}
	return errors.Join(
		want(got[0], "X-Trace", "t1"), want(got[0], "Authorization", "Bearer x"), want(got[0], "Cookie", "a=b"),
		want(got[0], "X-Forwarded-For", ip), want(got[0], "X-User", ""),
		want(got[1], "X-User", "alice"), want(got[2], "X-User", ""),
	)
}

// After five requests there is none for 2 s. Others, by address or by name, have their own
// five. A client that waits Retry-After is admitted.
func (s *setup) limits() error {
	c, other := s.client(s.fresh()), s.client(s.fresh())
	for i := range 5 {
		a, err := c.get("/")
		if err != nil {
			return err
		}
		if err := errors.Join(a.is(200), a.has("RateLimit", remaining(4-i))); err != nil {
			return err
		}
	}
	s.app.take()
	const ms = time.Millisecond
	for _, tt := range []struct {
		pass time.Duration // since the row before
		want string        // 2 s less what has passed, rounded up
	}{
		{0, "2"}, {999 * ms, "2"}, {ms, "1"}, {999 * ms, "1"},
	} {
		s.clock.advance(tt.pass)
		for _, method := range []string{"GET", "HEAD", "DELETE"} {
			a, err := c.send(method, "/", nil)
			if err != nil {
				return err
			}
			if err := a.isRefused(method, tt.want); err != nil {
				return fmt.Errorf("%s after another %v: %w", method, tt.pass, err)
			}
		}
	}
	if got := s.app.take(); len(got) > 0 {
		return fmt.Errorf("refused, and yet the application got %v", got)
	}
	another, err := other.get("/")
	if err != nil {
		return err
	}
	s.clock.advance(ms)
	a, err := c.get("/")
	if err != nil {
		return err
	}
	return errors.Join(another.is(200), another.has("RateLimit", remaining(4)), a.is(200), a.has("RateLimit", remaining(0)))
}

// remaining returns how the limit stands.
func remaining(n int) string {
	if n == 0 {
		return `"api";r=0;t=2`
	}
	return fmt.Sprintf(`"api";r=%d`, n)
}

// isRefused returns why an answer is not what a client gets who is refused.
func (a *answer) isRefused(method, after string) error {
	err := errors.Join(a.is(429), a.has(
		"Retry-After", after, "RateLimit", `"api";r=0;t=`+after, "RateLimit-Policy", `"api";q=5;w=10`,
		"Cache-Control", "no-store", "Content-Type", "application/problem+json",
	))
	if method == "HEAD" {
		return err
	}
	var problem struct {
		Type   string
		Status int
	}
	if e := json.Unmarshal([]byte(a.body), &problem); e != nil || problem.Status != 429 || !strings.HasSuffix(problem.Type, "#quota-exceeded") {
		return fmt.Errorf("the body is %q: %w", a.body, errors.Join(err, e))
	}
	return err
}

// Whatever clients claim to be, they pay as who they are.
func (s *setup) ignoresForgery() error {
	const trusted = "127.0.0.1" // by weir: what such an address passes on is believed
	return errors.Join(
		s.forge(trusted, ""),
		s.forge(s.fresh(), ""),
		s.forge(trusted, "alice-demo-key"),
	)
}

// forge sends 20 requests, of which 5 are admitted if all count as one client's.
func (s *setup) forge(ip, key string) error {
	c, admitted := s.client(ip), 0
	for range 20 {
		a, err := c.get("/", append(forged(), "X-Api-Key", key)...)
		if err != nil {
			return err
		}
		if a.status == http.StatusOK {
			admitted++
		} else if err := a.is(http.StatusTooManyRequests); err != nil {
			return err
		}
	}
	got := s.app.take()
	if admitted != 5 || len(got) != 5 {
		return fmt.Errorf("%s, key %q: %d of 20 admitted, %d reached the application, want 5", ip, key, admitted, len(got))
	}
	for _, r := range got {
		for _, name := range []string{"X-User", "X-Forwarded-For", "X-Real-Ip", "Forwarded"} {
			if text := strings.Join(r.header.Values(name), ","); strings.Contains(text, "6.6.") || strings.Contains(text, "mallory") {
				return fmt.Errorf("the application received %s: %s", name, text)
			}
		}
	}
	return nil
}

// forged returns headers with which a client claims to be somebody else. Connection asks
// the proxy to remove its own.
func forged() []string {
	ip := fmt.Sprintf("6.6.%d.%d", rand.IntN(256), rand.IntN(256))
	name := fmt.Sprint("mallory", rand.IntN(1e9))
	return []string{
		"X-User", name, "x-user", name + "2", "X_User", name,
		"X-Forwarded-For", ip, "X-Forwarded-For", ip + ", " + ip, "X-Real-IP", ip,
		"Forwarded", "for=" + ip, "True-Client-IP", ip,
		"X-Original-URI", "/" + name, "X-Original-Method", name, "X-Forwarded-Uri", "/" + name,
		"X-Forwarded-Method", name, "X-Forwarded-Host", name,
		"Connection", "X-User, X-Forwarded-For, X-Forwarded-Host, X-Forwarded-Uri, X-Original-Uri, X-Original-Method",
	}
}

// The application may refuse by itself, and its answer is the client's.
func (s *setup) passesAnswers() error {
	c := s.client(s.fresh())
	for _, code := range []int{401, 403, 429, 500, 503} {
		path := fmt.Sprintf("/status/%d", code)
		a, err := c.get(path)
		if err != nil {
			return err
		}
		if err := errors.Join(a.is(code), a.has("Retry-After", "17", "Content-Type", "text/x-own", "Cache-Control", "")); err != nil {
			return err
		}
		if a.body != path {
			return fmt.Errorf("%d: the body is %q", code, a.body)
		}
	}
	return nil
}

// An application that fails is not asked once more, as if weir had failed.
func (s *setup) asksOnce() error {
	a, err := s.client(s.fresh()).send("POST", "/hangup", nil)
	if err != nil {
		return err
	}
	if got := s.app.take(); len(got) != 1 {
		return fmt.Errorf("the application was asked %d times", len(got))
	}
	return a.is(http.StatusBadGateway)
}

// Bodies arrive whole, with and without a Content-Length.
func (s *setup) passesBodies() error {
	c := s.client(s.fresh())
	body := make([]byte, 100_000)
	for i := range body {
		body[i] = byte(rand.Uint32())
	}
	for i, reader := range []io.Reader{
		strings.NewReader(string(body)),                        // with a length
		io.MultiReader(strings.NewReader(string(body))),        // in chunks
		strings.NewReader(string(body)), io.MultiReader(), nil, // after which nothing is left
	} {
		want := sha256.Sum256(nil)
		if i < 3 {
			want = sha256.Sum256(body)
		}
		a, err := c.send("POST", "/", reader, "Expect", []string{"", "100-continue"}[i/2%2])
		if err != nil {
			return err
		}
		if err := a.is(200); err != nil {
			return err
		}
		if got := s.app.take(); len(got) != 1 || got[0].body != want || got[0].method != "POST" {
			return fmt.Errorf("body %d arrived otherwise: %v", i, got)
		}
	}
	a, err := c.send("POST", "/", strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	again, err := c.get("/")
	if err != nil {
		return err
	}
	return errors.Join(a.isRefused("POST", "2"), again.isRefused("GET", "2"))
}

// Requests that are sent without waiting for answers are answered in their order, on the
// same connection, refused or not.
func (s *setup) keepsConnections() error {
	conn, err := s.dial(s.fresh())
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	answers := bufio.NewReader(conn)
	for round := range 2 {
		s.clock.advance(time.Minute)
		for i := range 8 {
			fmt.Fprintf(conn, "GET /%d/%d HTTP/1.1\r\nHost: shop.example\r\n\r\n", round, i)
		}
		for i := range 8 {
			resp, err := http.ReadResponse(answers, nil)
			if err != nil {
				return fmt.Errorf("answer %d: %w", i, err)
			}
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				return err
			}
			want := 200
			if i >= 5 {
				want = 429
			}
			if resp.StatusCode != want || want == 200 && string(text) != fmt.Sprintf("/%d/%d", round, i) || resp.Close {
				return fmt.Errorf("answer %d of round %d: %d %q, close %v", i, round, resp.StatusCode, text, resp.Close)
			}
		}
	}
	return nil
}
