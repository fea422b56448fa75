package respapi

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
	"net"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/identity"
)

// certificate makes one with a common name, signed by itself.
func certificate(t *testing.T, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// A client with a certificate need not AUTH.
func TestCertificate(t *testing.T) {
	f := newFixture(t, "bob")
	clients, err := identity.NewClients([]identity.Client{{Name: "alice", Certificate: "alice.example"}})
	if err != nil {
		t.Fatal(err)
	}
	st := *f.state.Load()
	st.Authenticator = &identity.Authenticator{Clients: clients}
	f.state.Store(&st)
	server, roots := certificate(t, "localhost")
	alice, authorities := certificate(t, "alice.example")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go f.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{server}, ClientCAs: authorities, ClientAuth: tls.VerifyClientCertIfGiven}))
	for _, tt := range []struct {
		certificates []tls.Certificate
		want         string
	}{{nil, noauth}, {[]tls.Certificate{alice}, "+PONG"}} {
		c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: roots, ServerName: "localhost", Certificates: tt.certificates})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "PING\r\nRESET\r\nPING\r\n")
		want := tt.want + "\r\n+RESET\r\n" + tt.want + "\r\n"
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
		defer c.Close()
	}
	ctx, cancel := contextWithTimeout(5 * time.Second)
	defer cancel()
	if err := f.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}
