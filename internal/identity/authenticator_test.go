package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

func request(from, authorization string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/v1/check", nil)
	r.RemoteAddr = from
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return r
}

// answer returns a refusal as it is sent.
func answer(err *Refusal) string {
	w := httptest.NewRecorder()
	err.Write(w)
	return fmt.Sprint(w.Code, w.Header(), w.Body)
}

func newAuthenticator(t testing.TB) *Authenticator {
	t.Helper()
	return &Authenticator{
		Clients: clients(t, Client{Name: "shop", Tokens: tokens("shop")}, Client{Name: "cert", Certificate: "cert.example"}),
		Operators: operators(t,
			Operator{Name: "reader", Tokens: tokens("reader"), Scopes: Read},
			Operator{Name: "root", Tokens: tokens("root"), Scopes: Read | Write | Block}),
		Failures: &Failures{},
	}
}

func TestBearer(t *testing.T) {
	good := token("shop")
	tests := []struct {
		header string
		status int // 0 = it is the shop
	}{
		{"Bearer " + good, 0},
		{"bearer " + good, 0},
		{"BEARER " + good, 0},
		{"Bearer   " + good + "  ", 0},
		{"Bearer\t" + good, 401},
		{"Bearer" + good, 401},
		{"Bearer", 401},
		{"Bearer ", 401},
		{"Bearer  ", 401},
		{"", 401},
		{good, 401},
		{"Basic " + good, 401},
		{"Bearer " + good + "x", 401},
		{"Bearer " + good[1:], 401},
		{"Bearer " + good + " " + good, 401},
		{"Bearer Bearer " + good, 401},
		{"Bearer " + token("reader"), 401}, // of an operator
		{"Bearer \xff" + good, 401},
		{"Bearer " + good + "\x00", 401},
		{"Bearer " + strings.Repeat("x", 1<<16), 401},
	}
	for _, tt := range tests {
		d := newAuthenticator(t)
		c, err := d.Client(request("192.0.2.1:1", tt.header))
		switch {
		case tt.status == 0 && (err != nil || c == nil || c.Name != "shop"):
			t.Errorf("%.60q: %v, %v", tt.header, c, err)
		case tt.status != 0 && (c != nil || err == nil || err.Status != tt.status || err.Error() == ""):
			t.Errorf("%.60q: %v, %v", tt.header, c, err)
		}
	}
}

func TestOpen(t *testing.T) {
	d := newAuthenticator(t)
	d.Open = true
	tests := []struct {
		header, want string
		refused      bool
	}{
		{"", "", false},
		{"Basic x", "", false},
		{"Bearer " + token("shop"), "shop", false},
		{"Bearer " + token("x"), "", true}, // a wrong token is refused although none is required
	}
	for _, tt := range tests {
		c, err := d.Client(request("192.0.2.1:1", tt.header))
		if (err != nil) != tt.refused || (c != nil) != (tt.want != "") || c != nil && c.Name != tt.want {
			t.Errorf("%q: %v, %v", tt.header, c, err)
		}
	}
	if _, err := d.Operator(request("192.0.2.1:1", ""), Read); err == nil {
		t.Error("Open lets operators in without a token")
	}
}

func TestNobodyIsConfigured(t *testing.T) {
	d := &Authenticator{}
	if c, err := d.Client(request("192.0.2.1:1", "Bearer x")); c != nil || err != nil {
		t.Error(c, err)
	}
	if o, err := d.Operator(request("192.0.2.1:1", "Bearer x"), Block); o != nil || err != nil {
		t.Error(o, err)
	}
}

func TestOperator(t *testing.T) {
	tests := []struct {
		header string
		need   Scope
		want   string // "" = refused
		status int
	}{
		{"Bearer " + token("reader"), Read, "reader", 0},
		{"Bearer " + token("reader"), Write, "", 403},
		{"Bearer " + token("reader"), Read | Block, "", 403},
		{"Bearer " + token("root"), Read | Write | Block, "root", 0},
		{"Bearer " + token("shop"), Read, "", 401}, // of a client
		{"Bearer " + token("x"), Read, "", 401},
		{"", Read, "", 401},
	}
	for _, tt := range tests {
		o, err := newAuthenticator(t).Operator(request("192.0.2.1:1", tt.header), tt.need)
		switch {
		case tt.want != "" && (err != nil || o.Name != tt.want):
			t.Errorf("%q for %v: %v, %v", tt.header, tt.need, o, err)
		case tt.want == "" && (o != nil || err == nil || err.Status != tt.status):
			t.Errorf("%q for %v: %v, %+v", tt.header, tt.need, o, err)
		case tt.status == 403 && !strings.Contains(err.Error(), "reader has the scopes read"):
			t.Error(err)
		}
	}
}

func TestRefusalsOnTheWire(t *testing.T) {
	tests := []struct {
		err  Refusal
		want []string
	}{
		{Refusal{Status: 401, Problem: "who?"}, []string{"401", `Bearer realm="weir"`, "who?", "application/problem+json"}},
		{Refusal{Status: 403, Problem: "no"}, []string{"403", "no"}},
		{Refusal{Status: 429, Problem: "later", RetryAfter: 2500 * time.Millisecond}, []string{"429", "Retry-After:[3]", "later"}},
		{Refusal{Status: 429, Problem: "later", RetryAfter: 1}, []string{"429", "Retry-After:[1]"}},
	}
	for _, tt := range tests {
		got := answer(&tt.err)
		for _, part := range tt.want {
			if !strings.Contains(got, part) {
				t.Errorf("%s lacks %s", got, part)
			}
		}
	}
}

// certificate is what a handshake has verified.
func certificate(commonName string, dnsNames ...string) *tls.ConnectionState {
	names := append(make([]string, 0, len(dnsNames)+4), dnsNames...) // as the parser leaves it: with room
	cert := &x509.Certificate{Subject: pkix.Name{CommonName: commonName}, DNSNames: names}
	return &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}, PeerCertificates: []*x509.Certificate{cert}}
}

func TestCertificates(t *testing.T) {
	unverified := certificate("cert.example", "cert.example")
	unverified.VerifiedChains = nil
	tests := []struct {
		name  string
		state *tls.ConnectionState
		token string
		want  string
	}{
		{"common name", certificate("cert.example"), "", "cert"},
		{"DNS name", certificate("x", "y", "cert.example"), "", "cert"},
		{"another", certificate("x", "y"), "", ""},
		{"another, and a token", certificate("x", "y"), "shop", "shop"},
		{"no names", certificate(""), "", ""},
		{"not verified", unverified, "", ""},
		{"not verified, and a token", unverified, "shop", "shop"},
		{"none", &tls.ConnectionState{}, "", ""},
	}
	for _, tt := range tests {
		r := request("192.0.2.1:1", "")
		r.TLS = tt.state
		if tt.token != "" {
			r.Header.Set("Authorization", "Bearer "+token(tt.token))
		}
		c, err := newAuthenticator(t).Client(r)
		if (c == nil) != (tt.want == "") || (err == nil) != (tt.want != "") || c != nil && c.Name != tt.want {
			t.Errorf("%s: %v, %v", tt.name, c, err)
		}
	}
}

// Requests of one connection share its certificate, which must not be modified.
func TestCertificatesAreShared(t *testing.T) {
	d, state := newAuthenticator(t), certificate("cert.example", "x", "y")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			r := request("192.0.2.1:1", "")
			r.TLS = state
			for range 100 {
				if c, err := d.Client(r); err != nil || c.Name != "cert" {
					t.Error(c, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if names := state.VerifiedChains[0][0].DNSNames; names[:cap(names)][2] != "" {
		t.Errorf("somebody wrote %q into the certificate", names[:cap(names)][2])
	}
}

// A handshake, with an authority of our own.
func TestHandshake(t *testing.T) {
	ca := newAuthority(t)
	d := newAuthenticator(t)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := d.Client(r)
		if err != nil {
			err.Write(w)
			return
		}
		fmt.Fprint(w, c.Name)
	}))
	s.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: ca.pool}
	s.StartTLS()
	defer s.Close()
	for name, want := range map[string]string{"cert.example": "200 cert", "other.example": "401", "": "401"} {
		client := s.Client()
		config := client.Transport.(*http.Transport).TLSClientConfig
		config.Certificates = nil
		if name != "" {
			config.Certificates = []tls.Certificate{ca.issue(t, name)}
		}
		client.CloseIdleConnections()
		resp, err := client.Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if got := fmt.Sprint(resp.StatusCode, " ", string(body)); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s, %v, want %s", name, got, err, want)
		}
	}
}

// authority signs certificates of clients.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{pool: x509.NewCertPool()}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	var der []byte
	a.key, der = sign(t, template, template, nil)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"first.example", name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	key, der := sign(t, template, a.cert, a.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// sign makes a key and a certificate for it, signed by a parent or, if that has no key, by
// itself.
func sign(t *testing.T, template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if parentKey == nil {
		parentKey = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	return key, der
}

func TestAddress(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:80":                    "192.0.2.1",
		"[::ffff:192.0.2.1]:80":           "192.0.2.1",
		"[2001:db8::1]:80":                "2001:db8::/64",
		"[2001:db8::ffff:1:2:3]:80":       "2001:db8::/64",
		"[2001:db8:0:1::1]:80":            "2001:db8:0:1::/64",
		"[fe80::1%eth0]:80":               "fe80::/64",
		"@":                               "unix",
		"":                                "unix",
		"/run/weir.sock":                  "unix",
		"192.0.2.1":                       "unix",
		strings.Repeat("x", 1000) + ":80": "unix",
	} {
		if got := network(remote); got != want {
			t.Errorf("%.50q is %q, want %q", remote, got, want)
		}
	}
}

func ExampleRefusal_Write() {
	err := &Refusal{Status: http.StatusTooManyRequests, Problem: "too many wrong tokens came from this address", RetryAfter: 1500 * time.Millisecond}
	w := httptest.NewRecorder()
	err.Write(w)
	fmt.Println(w.Code, w.Header().Get("Retry-After"))
	// Output: 429 2
}

func BenchmarkClient(b *testing.B) {
	d, r := newAuthenticator(b), request("192.0.2.1:1", "Bearer "+token("shop"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Client(r); err != nil {
			b.Fatal(err)
		}
	}
}
