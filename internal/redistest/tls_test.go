package redistest

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"testing"
	"time"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	s := Start(t, TLS())
	wantText(t, s, "PONG", "PING")
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.CA()) {
		t.Fatal("CA is no certificate")
	}
	if err := pingTLS(t, s, &tls.Config{RootCAs: roots}); err != nil {
		t.Errorf("with the CA: %v", err)
	}
	if err := pingTLS(t, s, &tls.Config{RootCAs: x509.NewCertPool()}); err == nil {
		t.Error("without the CA a client trusts the server")
	}
	plain := &Server{t: t, port: s.port}
	if r, err := plain.Do("PING"); err == nil {
		t.Errorf("without TLS a client gets %+v", r)
	}
}

func TestTLSWithClientCertificates(t *testing.T) {
	t.Parallel()
	s := Start(t, TLS(), Config("tls-auth-clients", "yes"))
	certFile, keyFile := s.CertFiles()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	ca, err := os.ReadFile(s.CAFile())
	if err != nil || !roots.AppendCertsFromPEM(ca) {
		t.Fatalf("CA file: %v", err)
	}
	if err := pingTLS(t, s, &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	if err := pingTLS(t, s, &tls.Config{RootCAs: roots}); err == nil {
		t.Error("a client without a certificate was let in")
	}
}

func TestNoTLSConfigWithoutTLS(t *testing.T) {
	t.Parallel()
	if c := Start(t).TLSConfig(); c != nil {
		t.Errorf("TLSConfig = %v, want nil", c)
	}
}

func pingTLS(t *testing.T, s *Server, c *tls.Config) error {
	t.Helper()
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: commandTimeout}, "tcp", s.Addr(), c)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(commandTimeout)); err != nil {
		return err
	}
	_, err = newClient(conn).do("PING")
	return err
}
