package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/ruleset"
)

// authority signs certificates for a test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.key = newKey(t)
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// sign writes name.pem and name.key, of which serial tells versions apart.
func (a *authority) sign(name string, serial int64) {
	a.t.Helper()
	key := newKey(a.t)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".pem", "CERTIFICATE", der)
	der, err = x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".key", "EC PRIVATE KEY", der)
}

// client trusts the authority and shows a certificate, if it has a name.
func (a *authority) client(name string) *http.Client {
	a.t.Helper()
	pool := x509.NewCertPool()
	text, err := os.ReadFile(a.file("ca.pem"))
	if err != nil {
		a.t.Fatal(err)
	}
	pool.AppendCertsFromPEM(text)
	config := &tls.Config{RootCAs: pool}
	if name != "" {
		cert, err := tls.LoadX509KeyPair(a.file(name+".pem"), a.file(name+".key"))
		if err != nil {
			a.t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
}

// Clients prove who they are with certificates; certificates of the server can be replaced
// while it runs.
func TestTLS(t *testing.T) {
	a := newAuthority(t)
	a.sign("localhost", 10)
	a.sign("checkout", 11)
	a.sign("unlisted", 12)
	live := Live{Clients: []Client{{Name: "shop", Certificate: "checkout"}}}
	srv := run(t, Config{
		Limiter: frozenTable(t), Live: live,
		HTTP: Listener{Address: "127.0.0.1:0", TLS: &TLS{CertFile: a.file("localhost.pem"), KeyFile: a.file("localhost.key"), ClientCAFile: a.file("ca.pem")}},
	})
	url := "https://" + srv.bound.HTTP.String()
	for _, tt := range []struct {
		name   string
		status int
	}{{"checkout", 200}, {"unlisted", 401}, {"", 401}} {
		if _, status := check(t, a.client(tt.name), url, body); status != tt.status {
			t.Errorf("client %q: %d, want %d", tt.name, status, tt.status)
		}
	}
	serial := func() int64 {
		resp, err := a.client("").Get(url + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	if n := serial(); n != 10 {
		t.Errorf("certificate %d", n)
	}
	a.sign("localhost", 20)
	if err := srv.Reload(context.Background(), live); err != nil {
		t.Fatal(err)
	}
	if n := serial(); n != 20 {
		t.Errorf("certificate %d after the reload", n)
	}
	a.write("localhost.pem", "CERTIFICATE", []byte("rubbish"))
	if err := srv.Reload(context.Background(), live); err == nil || serial() != 20 {
		t.Errorf("rubbish was taken: %v", err)
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.sock")
	stale, err := net.Listen("unix", path) // left behind by somebody who did not end well
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close()
	srv := run(t, Config{Limiter: frozenTable(t), HTTP: Listener{Address: "unix:" + path}})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}}
	if a, status := check(t, client, "http://localhost", body); !a.Allowed || status != http.StatusOK {
		t.Errorf("%+v %d", a, status)
	}
	second, err := New(Config{Limiter: frozenTable(t), HTTP: Listener{Address: "unix:" + path}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, second.Run(context.Background()), "somebody listens there already")
	if _, status := check(t, client, "http://localhost", body); status != http.StatusOK {
		t.Error("the first one is gone")
	}
	srv.stop()
	<-srv.done
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// otherGroup returns a group that a file may be given to, if possible not that of new files.
func otherGroup(t *testing.T) int {
	t.Helper()
	groups, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		if g != os.Getgid() {
			return g
		}
	}
	if os.Geteuid() == 0 {
		return os.Getgid() + 1
	}
	return os.Getgid()
}

// A socket has a mode and a group.
func TestUnixSocketMode(t *testing.T) {
	for _, tt := range []struct {
		mode, want fs.FileMode
		group      string
		problem    string
	}{
		{0, 0o660, "", ""},
		{0o666, 0o666, strconv.Itoa(otherGroup(t)), ""},
		{0o600, 0o600, "", ""},
		{0, 0, "no-such-group", `group "no-such-group": `},
	} {
		path := filepath.Join(t.TempDir(), "weir.sock")
		l, err := Listener{Address: "unix:" + path, Mode: tt.mode, Group: tt.group}.listen(t.Context(), 1)
		if tt.problem != "" {
			wantError(t, err, tt.problem)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != tt.want {
			t.Errorf("mode %#o: %v, %v; want %#o", tt.mode, info, err, tt.want)
		}
		if gid := strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Gid)); tt.group != "" && gid != tt.group {
			t.Errorf("its group is %s, want %s", gid, tt.group)
		}
		l.Close()
	}
	c := Config{Limiter: frozenTable(t), HTTP: Listener{Address: "127.0.0.1:0", Group: "proxy"}}
	wantError(t, c.Validate(), "mode and group are those of a Unix socket")
	c.HTTP = Listener{Address: "unix:/run/weir.sock", Mode: fs.ModeDir | 0o700}
	wantError(t, c.Validate(), "must be permissions")
}

// Operators' paths are on the admin listener, if there is one, and calls are not.
func TestAdminListener(t *testing.T) {
	srv := run(t, Config{Limiter: frozenTable(t), Admin: Listener{Address: "127.0.0.1:0"}})
	client := newClient(t)
	admin := "http://" + srv.bound.Admin.String()
	for _, tt := range []struct {
		path        string
		http, admin int
	}{
		{"/", 404, 200},
		{"/metrics", 404, 200},
		{"/admin/v1/config", 404, 200},
		{"/assets/weir.js", 404, 200},
		{"/healthz", 200, 200},
		{"/readyz", 200, 200},
		{"/v1/check", 405, 404},
		{"/v1/auth/default", 200, 404},
	} {
		if _, status := getText(t, client, srv.url+tt.path); status != tt.http {
			t.Errorf("http %s: %d, want %d", tt.path, status, tt.http)
		}
		if _, status := getText(t, client, admin+tt.path); status != tt.admin {
			t.Errorf("admin %s: %d, want %d", tt.path, status, tt.admin)
		}
	}
}

// A listener that others reach does not serve operators' paths.
func TestNoAdminForOthers(t *testing.T) {
	srv := run(t, Config{HTTP: Listener{Address: "0.0.0.0:0"}, Limiter: frozenTable(t), Live: Live{Open: true}})
	_, port, _ := net.SplitHostPort(srv.bound.HTTP.String())
	for _, path := range []string{"/", "/metrics", "/admin/v1/config"} {
		if _, status := getText(t, newClient(t), "http://127.0.0.1:"+port+path); status != http.StatusNotFound {
			t.Errorf("%s: %d", path, status)
		}
	}
}

func TestOperatorsProveWhoTheyAre(t *testing.T) {
	srv := run(t, Config{Limiter: frozenTable(t), Live: Live{Operators: []Operator{{Name: "ops", Tokens: token("ops"), Scopes: ScopeRead}}}})
	client := newClient(t)
	for _, path := range []string{"/metrics", "/admin/v1/config"} {
		if _, status := getText(t, client, srv.url+path); status != http.StatusUnauthorized {
			t.Errorf("%s: %d without a token", path, status)
		}
		if _, status := getText(t, client, srv.url+path, "Authorization", "Bearer "+token("ops")[0].Reveal()); status != http.StatusOK {
			t.Errorf("%s: %d with one", path, status)
		}
	}
	if a, status := check(t, client, srv.url, body); !a.Allowed || status != http.StatusOK {
		t.Errorf("a call: %+v %d", a, status) // whose tokens are others
	}
}

// An override holds at once, and until it ends or is removed.
func TestOverride(t *testing.T) {
	srv := run(t, Config{Limiter: frozenTable(t), Live: Live{Policies: []ruleset.Policy{onePolicy("api", 10)}}})
	client := newClient(t)
	const alice = `{"policy":"api","key":"alice","cost":0}`
	send := func(method, path, body string) int {
		req, err := http.NewRequest(method, srv.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if status := send("PUT", "/admin/v1/keys/override", `{"policy":"api","key":"alice","limits":[{"rate":1,"per":"1h","burst":77}],"ttl_s":3600}`); status/100 != 2 {
		t.Fatalf("status %d", status)
	}
	if a, _ := check(t, client, srv.url, alice); a.Limit != 77 {
		t.Errorf("%+v", a)
	}
	if a, _ := check(t, client, srv.url, `{"policy":"api","key":"bob"}`); a.Limit != 10 {
		t.Errorf("somebody else: %+v", a)
	}
	if err := srv.Reload(context.Background(), Live{Policies: []ruleset.Policy{onePolicy("api", 12)}}); err != nil {
		t.Fatal(err)
	}
	if a, _ := check(t, client, srv.url, alice); a.Limit != 77 {
		t.Errorf("after a reload: %+v", a)
	}
	if status := send("DELETE", "/admin/v1/keys/override?policy=api&key=alice", ""); status/100 != 2 {
		t.Errorf("status %d", status)
	}
	if a, _ := check(t, client, srv.url, alice); a.Limit != 12 {
		t.Errorf("after its end: %+v", a)
	}
}

// A stop ends the streams of those who watch.
func TestStopEndsStreams(t *testing.T) {
	srv := run(t, Config{Limiter: frozenTable(t)})
	resp, err := newClient(t).Get(srv.url + "/admin/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	client := newClient(t)
	check(t, client, srv.url, body)
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), `"key":"alice"`) {
	}
	began := time.Now()
	srv.stop()
	if err := <-srv.done; err != nil {
		t.Errorf("Run = %v after %v", err, time.Since(began))
	}
}

// syncBuffer is a log that several write.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Tokens appear nowhere: not in answers, the log, metrics, or what is printed of the
// configuration.
func TestSecretsAppearNowhere(t *testing.T) {
	const canary = "canary"
	var log syncBuffer
	live := Live{
		Clients:   []Client{{Name: "shop", Tokens: token(canary + "-client")}},
		Operators: []Operator{{Name: "ops", Tokens: token(canary + "-admin"), Scopes: ScopeRead | ScopeWrite}},
		Effective: []Setting{{Path: "clients.shop.token", Value: token(canary + "-client")[0], Source: "weir.yaml:3"}},
	}
	srv := run(t, Config{Limiter: frozenTable(t), Live: live, Log: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	client := newClient(t)
	var seen strings.Builder
	for _, bearer := range []string{"", token(canary + "-client")[0].Reveal(), token(canary + "-admin")[0].Reveal(), canary + "-wrong-token-0123456789012345"} {
		for _, path := range []string{"/", "/metrics", "/admin/v1/config", "/admin/v1/policies", "/admin/v1/stats", "/admin/v1/overrides", "/v1/auth/default", "/readyz", "/v1/check", "/nope"} {
			text, _ := getText(t, client, srv.url+path, "Authorization", "Bearer "+bearer)
			seen.WriteString(text)
		}
	}
	bad := live
	bad.Clients = append(bad.Clients, Client{Name: "again", Tokens: token(canary + "-client")}, Client{Name: "short", Tokens: token(canary)[:0]})
	if err := srv.Reload(context.Background(), bad); err != nil {
		seen.WriteString(err.Error())
	} else {
		t.Error("a token of two clients was taken")
	}
	text, _ := getText(t, client, srv.url+"/readyz")
	seen.WriteString(text + log.String())
	if i := strings.Index(seen.String(), canary); i >= 0 {
		t.Errorf("a secret appears: %.200q", seen.String()[max(0, i-100):])
	}
}

// The Redis protocol is answered beside HTTP, by the same rules, with the same counts.
func TestRESP(t *testing.T) {
	srv := run(t, Config{Limiter: frozenTable(t), RESP: Listener{Address: "127.0.0.1:0"}, Live: Live{Policies: []ruleset.Policy{onePolicy("api", 10)}}})
	if a, _ := check(t, newClient(t), srv.url, `{"policy":"api","key":"alice","cost":4}`); !a.Allowed {
		t.Fatalf("%+v", a)
	}
	conn, err := net.Dial("tcp", srv.bound.RESP.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	lines := bufio.NewReader(conn)
	say := func(command string, want ...string) {
		t.Helper()
		if _, err := conn.Write([]byte(command + "\r\n")); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if got, err := lines.ReadString('\n'); err != nil || strings.TrimSpace(got) != w {
				t.Errorf("%s: %q, %v; want %q", command, got, err, w)
			}
		}
	}
	say("WEIR.CHECK api alice 5", "*5", ":1", ":10", ":1", ":0", ":32400000")
	say("CL.THROTTLE k 0 1 60", "*5", ":0", ":1", ":0", ":-1", ":60")
	say("CL.THROTTLE k 0 1 60", "*5", ":1", ":1", ":0", ":60", ":60")
	metrics, _ := getText(t, newClient(t), srv.url+"/metrics")
	for _, want := range []string{
		`weir_decisions_total{backend="memory",decision="allowed",policy="cl.throttle",reason="admitted"} 1`,
		`weir_decisions_total{backend="memory",decision="denied",policy="cl.throttle",reason="exhausted"} 1`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("/metrics does not say %s", want)
		}
	}
	if err := srv.Reload(context.Background(), Live{Policies: []ruleset.Policy{onePolicy("api", 12)}}); err != nil {
		t.Fatal(err)
	}
	say("WEIR.CHECK api alice 5", "*5", ":0", ":12", ":3", ":7200000", ":32400000")
	srv.stop()
	if err := <-srv.done; err != nil {
		t.Error(err)
	}
	if _, err := lines.ReadString('\n'); err == nil {
		t.Error("the connection is still open")
	}
}
