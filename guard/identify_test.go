package guard

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/internal/fielderr"
)

const (
	listedKey = "k-listed-5f1c0a"
	hookedKey = "k-hooked-77e2b9"
	goodToken = "eyJ.good.token=="
	peer      = "192.0.2.1:4711"
	peerKey   = "ip:192.0.2.1"
)

// everyone has all sources.
func everyone() Identity {
	return Identity{
		Keys:        map[KeyHash]Owner{HashKey(listedKey): {ID: "mobile-app", Plan: "pro"}},
		VerifyKey:   only(hookedKey, Owner{ID: "partner", Plan: "gold"}),
		VerifyToken: only(goodToken, Owner{ID: "alice", Plan: "free"}),
	}
}

// only returns a verifier of one secret.
func only(secret string, o Owner) func(context.Context, string) (Owner, bool) {
	return func(_ context.Context, got string) (Owner, bool) { return o, got == secret }
}

func newIdentifier(t testing.TB, c Identity) *Identifier {
	t.Helper()
	i, err := NewIdentifier(c)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// subjectOf identifies a request in both steps, as middleware does.
func subjectOf(i *Identifier, ctx context.Context, c *Credentials) Subject {
	return i.Subject(ctx, c, i.Address(c))
}

func TestSubject(t *testing.T) {
	leaf := &x509.Certificate{DNSNames: []string{"billing.internal"}}
	verifiedTLS := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}
	address := Subject{Key: peerKey}
	listed := Subject{Key: "key:mobile-app", Plan: "pro", Verified: true}
	hooked := Subject{Key: "key:partner", Plan: "gold", Verified: true}
	alice := Subject{Key: "user:alice", Plan: "free", Verified: true}
	billing := Subject{Key: "cert:billing.internal", Verified: true}
	bob := User("bob")

	tests := []struct {
		name   string
		in     *Subject // of the context
		header http.Header
		tls    *tls.ConnectionState
		want   Subject
	}{
		{name: "nothing", want: address},
		{name: "context", in: &bob, want: bob},
		{name: "context without a key", in: &Subject{Verified: true}, want: address},
		{name: "context not verified", in: &Subject{Key: "user:bob"}, want: address},
		{name: "context with no ID", in: new(User("")), want: address},
		{name: "context with a long key", in: &Subject{Key: "user:" + strings.Repeat("x", 300), Verified: true}, want: User(strings.Repeat("x", 300))},
		{name: "listed key", header: http.Header{"X-Api-Key": {listedKey}}, want: listed},
		{name: "key of the hook", header: http.Header{"X-Api-Key": {hookedKey}}, want: hooked},
		{name: "wrong key", header: http.Header{"X-Api-Key": {listedKey + "x"}}, want: address},
		{name: "no key", header: http.Header{"X-Api-Key": {""}}, want: address},
		{name: "no lines", header: http.Header{"X-Api-Key": {}}, want: address},
		{name: "two keys", header: http.Header{"X-Api-Key": {listedKey, listedKey}}, want: address},
		{name: "the owner's ID as a key", header: http.Header{"X-Api-Key": {"mobile-app"}}, want: address},
		{name: "token", header: http.Header{"Authorization": {"Bearer " + goodToken}}, want: alice},
		{name: "token in lower case", header: http.Header{"Authorization": {"bEaReR   " + goodToken}}, want: alice},
		{name: "wrong token", header: http.Header{"Authorization": {"Bearer x" + goodToken}}, want: address},
		{name: "two Authorization lines", header: http.Header{"Authorization": {"Bearer " + goodToken, "Bearer " + goodToken}}, want: address},
		{name: "another scheme", header: http.Header{"Authorization": {"Basic " + goodToken}}, want: address},
		{name: "certificate", tls: verifiedTLS, want: billing},
		{name: "certificate that is not verified", tls: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}, want: address},
		{name: "an empty chain", tls: &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{}}}, want: address},
		{name: "all", in: &bob, header: http.Header{"X-Api-Key": {listedKey}, "Authorization": {"Bearer " + goodToken}}, tls: verifiedTLS, want: bob},
		{name: "key before token", header: http.Header{"X-Api-Key": {listedKey}, "Authorization": {"Bearer " + goodToken}}, tls: verifiedTLS, want: listed},
		{name: "token after a wrong key", header: http.Header{"X-Api-Key": {"wrong"}, "Authorization": {"Bearer " + goodToken}}, tls: verifiedTLS, want: alice},
		{name: "certificate after wrong others", in: &Subject{Key: "user:bob"}, header: http.Header{"X-Api-Key": {"wrong"}, "Authorization": {"Bearer wrong"}}, tls: verifiedTLS, want: billing},
	}
	i := newIdentifier(t, everyone())
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx := t.Context()
			if tt.in != nil {
				ctx = WithSubject(ctx, *tt.in)
			}
			if got := subjectOf(i, ctx, &Credentials{RemoteAddr: peer, Header: tt.header, TLS: tt.tls}); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestSourcesAreInOrder(t *testing.T) {
	both := http.Header{"X-Api-Key": {listedKey}, "Authorization": {"Bearer " + goodToken}}
	for want, sources := range map[string][]Source{
		"user:alice":     {SourceToken, SourceKey},
		"key:mobile-app": {SourceKey, SourceToken, SourceContext},
		"user:bob":       {SourceCertificate, SourceContext, SourceKey},
		peerKey:          {SourceCertificate},
	} {
		c := everyone()
		c.Sources = sources
		ctx := WithSubject(t.Context(), User("bob"))
		if got := subjectOf(newIdentifier(t, c), ctx, &Credentials{RemoteAddr: peer, Header: both}); got.Key != want {
			t.Errorf("%v: got %+v, want %q", sources, got, want)
		}
	}
}

func TestIdentifierCopiesItsConfiguration(t *testing.T) {
	c := everyone()
	c.Sources = []Source{SourceKey, SourceContext}
	i := newIdentifier(t, c)
	c.Sources[0] = SourceCertificate
	clear(c.Keys)
	if got := subjectOf(i, t.Context(), &Credentials{RemoteAddr: peer, Header: http.Header{"X-Api-Key": {listedKey}}}); got.Key != "key:mobile-app" {
		t.Errorf("got %+v", got)
	}
}

func TestKeyHeader(t *testing.T) {
	i := newIdentifier(t, Identity{KeyHeader: "x-PARTNER-key", Keys: everyone().Keys})
	for want, h := range map[string]http.Header{
		"key:mobile-app": {"X-Partner-Key": {listedKey}},
		peerKey:          {"X-Api-Key": {listedKey}},
	} {
		if got := subjectOf(i, t.Context(), &Credentials{RemoteAddr: peer, Header: h}); got.Key != want {
			t.Errorf("%v: got %+v", h, got)
		}
	}
}

// No verifier sees a key or token that is empty or too long, whatever it would say.
func TestCredentialsOfOddLengthsAreIgnored(t *testing.T) {
	yes := func(context.Context, string) (Owner, bool) { return Owner{ID: "x"}, true }
	i := newIdentifier(t, Identity{VerifyKey: yes, VerifyToken: yes})
	for n, want := range map[int]bool{0: false, 1: true, maxCredential: true, maxCredential + 1: false} {
		text := strings.Repeat("a", n)
		for name, h := range map[string]http.Header{"key": {"X-Api-Key": {text}}, "token": {"Authorization": {"Bearer " + text}}} {
			if got := subjectOf(i, t.Context(), &Credentials{RemoteAddr: peer, Header: h}); got.Verified != want {
				t.Errorf("%s of %d bytes: got %+v", name, n, got)
			}
		}
	}
}

// An owner without an ID is nobody, and a panic reaches the caller.
func TestVerifiersThatMisbehave(t *testing.T) {
	nobody := func(context.Context, string) (Owner, bool) { return Owner{Plan: "gold"}, true }
	i := newIdentifier(t, Identity{VerifyKey: nobody, VerifyToken: nobody, Certificate: func(*x509.Certificate) (Owner, bool) { return Owner{Plan: "gold"}, true }})
	c := &Credentials{
		RemoteAddr: peer,
		Header:     http.Header{"X-Api-Key": {"k"}, "Authorization": {"Bearer t"}},
		TLS:        &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{}}}},
	}
	if got := subjectOf(i, t.Context(), c); got != (Subject{Key: peerKey}) {
		t.Errorf("got %+v", got)
	}
	i = newIdentifier(t, Identity{VerifyKey: func(context.Context, string) (Owner, bool) { panic("boom") }})
	defer func() {
		if recover() != "boom" {
			t.Error("the panic of a verifier was recovered")
		}
	}()
	subjectOf(i, t.Context(), c)
}

func TestBearer(t *testing.T) {
	for line, want := range map[string]string{
		"Bearer mF_9.B5f-4.1JqM": "mF_9.B5f-4.1JqM",
		"BEARER a~b+c/d==":       "a~b+c/d==",
		"bearer   a":             "a",
		"":                       "",
		"Bearer":                 "",
		"Bearer ":                "",
		"Bearer    ":             "",
		"Bearer\ta":              "",
		"Bearera":                "",
		"Bearer =":               "",
		"Bearer ==":              "",
		"Bearer a=b":             "",
		"Bearer a b":             "",
		"Bearer a ":              "",
		"Bearer a, Bearer b":     "",
		"Bearer a\r\nX: y":       "",
		"Bearer a\x00":           "",
		"Bearer ä":               "",
		`Bearer "a"`:             "",
		" Bearer a":              "",
		"Basic YTpi":             "",
	} {
		if got := bearer(line); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}

// A client that puts random addresses at the beginning of X-Forwarded-For stays one subject, both as
// the peer of the connection and behind a trusted proxy.
func TestForgedForwardedForGainsNothing(t *testing.T) {
	i := newIdentifier(t, Identity{ClientIP: clientip.Config{Header: "x-forwarded-for", Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}})
	random := mathrand.New(mathrand.NewPCG(1, 2))
	direct, proxied := map[Subject]bool{}, map[Subject]bool{}
	for range 1000 {
		forged := netip.AddrFrom4([4]byte{byte(random.Uint32()), byte(random.Uint32()), byte(random.Uint32()), byte(random.Uint32())}).String()
		direct[subjectOf(i, t.Context(), &Credentials{RemoteAddr: "203.0.113.9:1", Header: http.Header{"X-Forwarded-For": {forged}}})] = true
		proxied[subjectOf(i, t.Context(), &Credentials{RemoteAddr: "10.0.0.1:1", Header: http.Header{"X-Forwarded-For": {forged + ", 203.0.113.9"}}})] = true
	}
	want := Subject{Key: "ip:203.0.113.9"}
	if len(direct) != 1 || !direct[want] || len(proxied) != 1 || !proxied[want] {
		t.Errorf("got %d and %d subjects, want one: %v", len(direct), len(proxied), want)
	}
}

// A client that uses all addresses of its network is one subject.
func TestNetworkIsOneSubject(t *testing.T) {
	i := newIdentifier(t, Identity{})
	got := map[Subject]bool{}
	for n := range 65536 {
		bytes := netip.MustParseAddr("2001:db8:1:2::").As16()
		bytes[8], bytes[15] = byte(n>>8), byte(n)
		got[subjectOf(i, t.Context(), &Credentials{RemoteAddr: netip.AddrPortFrom(netip.AddrFrom16(bytes), 443).String()})] = true
	}
	if want := (Subject{Key: "ip:2001:db8:1:2::/64"}); len(got) != 1 || !got[want] {
		t.Errorf("got %d subjects, want one: %v", len(got), want)
	}
}

// A client that sends a new key, token or header with each request is charged by its address.
func TestRotatingCredentialsGainsNothing(t *testing.T) {
	i := newIdentifier(t, everyone())
	got := map[Subject]bool{}
	for n := range 1000 {
		c := &Credentials{RemoteAddr: fmt.Sprintf("192.0.2.1:%d", n+1), Header: http.Header{
			"X-Api-Key":     {fmt.Sprintf("k-%d", n)},
			"Authorization": {fmt.Sprintf("Bearer t-%d", n)},
		}}
		got[subjectOf(i, t.Context(), c)] = true
	}
	if len(got) != 1 || !got[Subject{Key: peerKey}] {
		t.Errorf("got %d subjects, want one", len(got))
	}
}

// Zero addresses are ordinary subjects: unverified as addresses, and not exempt as users.
func TestZeroAddressIsOrdinary(t *testing.T) {
	i := newIdentifier(t, Identity{})
	for remote, want := range map[string]string{
		"0.0.0.0:1":          "ip:0.0.0.0",
		"[::]:1":             "ip:::/64",
		"[::ffff:0.0.0.0]:1": "ip:0.0.0.0",
		"127.0.0.1:1":        "ip:127.0.0.1",
		"[::1]:1":            "ip:::/64",
	} {
		if got := subjectOf(i, t.Context(), &Credentials{RemoteAddr: remote}); got != (Subject{Key: want}) {
			t.Errorf("%s: got %+v, want %q", remote, got, want)
		}
	}
	zero := "0x" + strings.Repeat("0", 40)
	if got := User(zero); got != (Subject{Key: "user:" + zero, Verified: true}) {
		t.Errorf("got %+v", got)
	}
}

// All callers without an address are one subject, whatever they claim.
func TestUnknownIsShared(t *testing.T) {
	i := newIdentifier(t, everyone())
	for _, remote := range []string{"", "@", "/run/app.sock", "pipe", "localhost:80", "192.0.2.1.5:1", "\x00"} {
		c := &Credentials{RemoteAddr: remote, Header: http.Header{"X-Forwarded-For": {"198.51.100.1"}, "X-Api-Key": {"wrong"}}}
		if got := subjectOf(i, t.Context(), c); got != (Subject{Key: Unknown}) {
			t.Errorf("%q: got %+v", remote, got)
		}
	}
	if got := i.AddressSubject(netip.Addr{}); got != (Subject{Key: "unknown"}) {
		t.Errorf("got %+v", got)
	}
}

// AddressSubject makes the keys of the resolver, which it does not call.
func TestAddressSubjectHasTheKeyOfTheResolver(t *testing.T) {
	for _, bits := range []int{0, 48, 56, 64, 128} {
		i := newIdentifier(t, Identity{ClientIP: clientip.Config{IPv6Prefix: bits}})
		for _, text := range []string{"192.0.2.1", "::ffff:192.0.2.1", "2001:db8:1:2:3:4:5:6", "fe80::1%eth0", "::", "255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"} {
			addr := netip.MustParseAddr(text)
			if got, want := i.AddressSubject(addr).Key, "ip:"+i.resolver.Key(addr); got != want {
				t.Errorf("/%d: %s: got %q, want %q", bits, text, got, want)
			}
		}
	}
}

func TestLongIDsHaveKeysOfTheirOwn(t *testing.T) {
	a, b := User(strings.Repeat("a", 300)), User(strings.Repeat("a", 299)+"b")
	if a == b || len(a.Key) > weir.MaxKeyBytes || !strings.HasPrefix(a.Key, "sha256:") || !a.Verified {
		t.Errorf("got %+v and %+v", a, b)
	}
	if longest := User(strings.Repeat("a", weir.MaxKeyBytes-len("user:"))); !strings.HasPrefix(longest.Key, "user:") {
		t.Errorf("got %+v", longest)
	}
}

// Certificates are shown in real handshakes: with one of a trusted authority, with one that the
// client signed itself, and with none.
func TestCertificates(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	spiffe := &x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "example.org", Path: "/billing"}}, DNSNames: []string{"d"}, Subject: pkix.Name{CommonName: "c"}}
	tests := []struct {
		name   string
		client *tls.Certificate
		auth   tls.ClientAuthType
		want   Subject
	}{
		{"URI", ours.issue(t, spiffe), tls.VerifyClientCertIfGiven, Subject{Key: "cert:spiffe://example.org/billing", Verified: true}},
		{"DNS name", ours.issue(t, &x509.Certificate{DNSNames: []string{"d", "e"}, Subject: pkix.Name{CommonName: "c"}}), tls.VerifyClientCertIfGiven, Subject{Key: "cert:d", Verified: true}},
		{"common name", ours.issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "c"}}), tls.VerifyClientCertIfGiven, Subject{Key: "cert:c", Verified: true}},
		{"no name", ours.issue(t, &x509.Certificate{}), tls.VerifyClientCertIfGiven, Subject{Key: peerKey}},
		{"forged, and the server does not verify", theirs.issue(t, spiffe), tls.RequestClientCert, Subject{Key: peerKey}},
		{"forged, and the server accepts any", theirs.issue(t, spiffe), tls.RequireAnyClientCert, Subject{Key: peerKey}},
		{"good, and the server does not verify", ours.issue(t, spiffe), tls.RequestClientCert, Subject{Key: peerKey}},
		{"none", nil, tls.VerifyClientCertIfGiven, Subject{Key: peerKey}},
	}
	i := newIdentifier(t, Identity{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			state := handshake(t, ours, tt.client, tt.auth)
			if tt.client != nil && len(state.PeerCertificates) == 0 {
				t.Fatal("the client has not shown its certificate")
			}
			if got := subjectOf(i, t.Context(), &Credentials{RemoteAddr: peer, TLS: &state}); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestCertificateHook(t *testing.T) {
	ours := newAuthority(t)
	state := handshake(t, ours, ours.issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "c", OrganizationalUnit: []string{"gold"}}}), tls.VerifyClientCertIfGiven)
	for _, ok := range []bool{true, false} {
		i := newIdentifier(t, Identity{Certificate: func(c *x509.Certificate) (Owner, bool) {
			return Owner{ID: "ou", Plan: c.Subject.OrganizationalUnit[0]}, ok
		}})
		want := Subject{Key: peerKey}
		if ok {
			want = Subject{Key: "cert:ou", Plan: "gold", Verified: true}
		}
		if got := subjectOf(i, t.Context(), &Credentials{RemoteAddr: peer, TLS: &state}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// authority is a certificate authority.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	cert, key := sign(t, template, authority{})
	return authority{cert, key}
}

func (a authority) issue(t *testing.T, template *x509.Certificate) *tls.Certificate {
	t.Helper()
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	cert, key := sign(t, template, a)
	return &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

// sign makes a certificate of a template. An authority without a certificate makes it self-signed.
func sign(t *testing.T, template *x509.Certificate, by authority) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(1)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if by.cert == nil {
		by = authority{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, &key.PublicKey, by.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// handshake connects a client to a server that trusts an authority. It returns the server's view.
func handshake(t *testing.T, trusted authority, client *tls.Certificate, auth tls.ClientAuthType) tls.ConnectionState {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(trusted.cert)
	serverCert := trusted.issue(t, &x509.Certificate{DNSNames: []string{"server"}})
	a, b := net.Pipe()
	server := tls.Server(a, &tls.Config{Certificates: []tls.Certificate{*serverCert}, ClientAuth: auth, ClientCAs: pool})
	config := &tls.Config{RootCAs: pool, ServerName: "server"}
	if client != nil {
		// Unlike Certificates, this sends it also to servers that ask for other authorities.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return client, nil }
	}
	done := make(chan error, 1)
	go func() { done <- tls.Client(b, config).HandshakeContext(t.Context()) }()
	if err := errors.Join(server.HandshakeContext(t.Context()), <-done); err != nil {
		t.Fatal(err)
	}
	_ = errors.Join(a.Close(), b.Close())
	return server.ConnectionState()
}

func TestNewIdentifierValidates(t *testing.T) {
	hook := only("k", Owner{ID: "o"})
	empty := HashKey("anything")
	tests := []struct {
		name string
		c    Identity
		want string // all messages
	}{
		{"zero", Identity{}, ""},
		{"everything", everyone(), ""},
		{"no keys yet", Identity{Keys: map[KeyHash]Owner{}, Sources: []Source{SourceKey}}, ""},
		{"key hook", Identity{VerifyKey: hook, Sources: []Source{SourceKey}}, ""},
		{"source 0", Identity{Sources: []Source{0}}, "guard: Sources[0] 0: is not a source"},
		{"source 5", Identity{Sources: []Source{SourceContext, 5}}, "guard: Sources[1] 5: is not a source"},
		{"twice", Identity{Sources: []Source{SourceContext, SourceCertificate, SourceContext}}, "guard: Sources[2] 1: is listed twice"},
		{"keys", Identity{Sources: []Source{SourceKey}}, "guard: Sources[0] 2: needs Keys or VerifyKey"},
		{"tokens", Identity{Sources: []Source{SourceContext, SourceToken}, VerifyKey: hook}, "guard: Sources[1] 3: needs VerifyToken"},
		{"header", Identity{KeyHeader: "X Api"}, `guard: KeyHeader "X Api": is not the name of a header`},
		{"header with a colon", Identity{KeyHeader: "X-Api:"}, `guard: KeyHeader "X-Api:": is not the name of a header`},
		{"owner", Identity{Keys: map[KeyHash]Owner{empty: {Plan: "pro"}}}, "guard: Keys." + empty.short() + ".ID: is missing: say who has the key"},
		{"address", Identity{ClientIP: clientip.Config{IPv6Prefix: 32}}, "guard: ClientIP: ipv6 prefix 32: must be between 48 and 128"},
		{
			"all",
			Identity{ClientIP: clientip.Config{IPv6Prefix: 32, Header: "via"}, Sources: []Source{7, SourceToken}, KeyHeader: "é"},
			`guard: ClientIP: header "via": must be x-forwarded-for, forwarded or x-real-ip, or left out
guard: ClientIP: header "via": is read from trusted peers only, and there are none; name the proxies' networks
guard: ClientIP: ipv6 prefix 32: must be between 48 and 128
guard: Sources[0] 7: is not a source
guard: Sources[1] 3: needs VerifyToken
guard: KeyHeader "é": is not the name of a header`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			i, err := NewIdentifier(tt.c)
			if got := fmt.Sprint(errors.Join(err)); err != nil && got != tt.want || (err == nil) != (tt.want == "") || (i == nil) == (err == nil) {
				t.Errorf("got %v\n%v\nwant\n%s", i, err, tt.want)
			}
			for _, e := range fielderr.Split(err) {
				if _, ok := errors.AsType[*fielderr.Error](e); !ok {
					t.Errorf("%v is a %T", e, e)
				}
			}
		})
	}
}

// FuzzSubject sends any headers from any peer. Only the secrets that are valid, sent in the right
// place, verify somebody; the others are charged by address.
func FuzzSubject(f *testing.F) {
	f.Add(peer, listedKey, "", "Bearer "+goodToken, "198.51.100.1")
	f.Add("10.0.0.1:1", hookedKey, "x", "bearer x", "192.0.2.7, 10.0.0.2")
	f.Add("", "", "", "", "")
	f.Add("[fe80::1%eth0]:1", "\r\n", "\x00", "Bearer \xff", "unknown")
	c := everyone()
	c.ClientIP = clientip.Config{Header: "x-forwarded-for", Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	i := newIdentifier(f, c)
	f.Fuzz(func(t *testing.T, remote, key, second, authorization, forwarded string) {
		h := http.Header{"X-Api-Key": {key}, "Authorization": {authorization}, "X-Forwarded-For": {forwarded}}
		if second != "" {
			h.Add("X-Api-Key", second)
		}
		credentials := &Credentials{RemoteAddr: remote, Header: h}
		scheme, rest, _ := strings.Cut(authorization, " ")
		var want string
		switch {
		case key == listedKey && second == "":
			want = "key:mobile-app"
		case key == hookedKey && second == "":
			want = "key:partner"
		case strings.EqualFold(scheme, "bearer") && strings.TrimLeft(rest, " ") == goodToken:
			want = "user:alice"
		}
		got := subjectOf(i, t.Context(), credentials)
		if got.Verified != (want != "") || got.Verified && got.Key != want {
			t.Errorf("got %+v, want %q", got, want)
		}
		if !got.Verified && (got != i.AddressSubject(i.Address(credentials)) || got.Key != Unknown && !strings.HasPrefix(got.Key, "ip:")) {
			t.Errorf("got %+v", got)
		}
		if len(got.Key) > weir.MaxKeyBytes {
			t.Errorf("the key has %d bytes", len(got.Key))
		}
	})
}

func TestIdentifyingAllocates(t *testing.T) {
	withoutKeys, with := newIdentifier(t, Identity{}), newIdentifier(t, everyone())
	long := strings.Repeat("k", 200)
	withLong := newIdentifier(t, Identity{Keys: map[KeyHash]Owner{HashKey(long): {ID: "long"}}})
	tests := []struct {
		name string
		i    *Identifier
		ctx  context.Context
		c    Credentials
		want float64
	}{
		{"IPv4", withoutKeys, t.Context(), Credentials{RemoteAddr: peer}, 1},
		{"IPv6", withoutKeys, t.Context(), Credentials{RemoteAddr: "[2001:db8:1:2::7]:443"}, 1},
		{"wrong key", with, t.Context(), Credentials{RemoteAddr: peer, Header: http.Header{"X-Api-Key": {"wrong"}}}, 1},
		{"listed key", with, t.Context(), Credentials{RemoteAddr: peer, Header: http.Header{"X-Api-Key": {listedKey}}}, 0},
		{"long listed key", withLong, t.Context(), Credentials{RemoteAddr: peer, Header: http.Header{"X-Api-Key": {long}}}, 0},
		{"context", with, WithSubject(t.Context(), User("bob")), Credentials{RemoteAddr: peer}, 0},
		{"token", with, t.Context(), Credentials{RemoteAddr: peer, Header: http.Header{"Authorization": {"Bearer " + goodToken}}}, 1},
	}
	for _, tt := range tests {
		if got := testing.AllocsPerRun(1000, func() {
			c := tt.c // as a handler makes it, on the stack
			subjectOf(tt.i, tt.ctx, &c)
		}); got != tt.want {
			t.Errorf("%s: %v allocations, want %v", tt.name, got, tt.want)
		}
	}
}

func BenchmarkSubject(b *testing.B) {
	i := newIdentifier(b, everyone())
	for name, c := range map[string]*Credentials{
		"IPv4": {RemoteAddr: peer},
		"IPv6": {RemoteAddr: "[2001:db8:1:2::7]:443"},
		"key":  {RemoteAddr: peer, Header: http.Header{"X-Api-Key": {listedKey}}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				subjectOf(i, b.Context(), c)
			}
		})
	}
}
