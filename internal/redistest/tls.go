package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Files in a server's directory.
const (
	caFile   = "ca.crt"
	certFile = "redis.crt"
	keyFile  = "redis.key"
)

// keyring holds a CA and one certificate of its making, in PEM. Servers and clients
// share the certificate: nobody here tells them apart.
type keyring struct {
	ca, cert, key []byte
}

// theKeyring is one per process, so that all nodes of a Cluster trust each other.
var theKeyring = sync.OnceValues(newKeyring)

func newKeyring() (*keyring, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca := template(1, "redistest CA")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	leaf := template(2, "redistest")
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	leaf.IPAddresses, leaf.DNSNames = []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &keyring{
		ca:   encode("CERTIFICATE", caDER),
		cert: encode("CERTIFICATE", leafDER),
		key:  encode("PRIVATE KEY", keyDER),
	}, nil
}

func template(serial int64, name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour), // clocks may step back a little
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// write puts the files where a server looks for them.
func (k *keyring) write(dir string) error {
	for name, text := range map[string][]byte{caFile: k.ca, certFile: k.cert, keyFile: k.key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (k *keyring) config() (*tls.Config, error) {
	pair, err := tls.X509KeyPair(k.cert, k.key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(k.ca)
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}}, nil
}

// CA returns the certificate, in PEM, that a client of a server with [TLS] must trust.
func (s *Server) CA() []byte {
	s.t.Helper()
	return s.keyring().ca
}

// CAFile returns the path of a file with CA.
func (s *Server) CAFile() string { return s.path(caFile) }

// CertFiles returns the paths of a certificate for clients and of its key.
func (s *Server) CertFiles() (cert, key string) { return s.path(certFile), s.path(keyFile) }

// TLSConfig returns what a client of a server with [TLS] needs: CA as its root and a
// client certificate. It is nil for a server without. The caller may change it.
func (s *Server) TLSConfig() *tls.Config {
	s.t.Helper()
	if !s.set.tls {
		return nil
	}
	c, err := s.keyring().config()
	if err != nil {
		s.t.Fatalf("redistest: TLS: %v", err)
	}
	return c
}

func (s *Server) keyring() *keyring {
	s.t.Helper()
	k, err := theKeyring()
	if err != nil {
		s.t.Fatalf("redistest: certificates: %v", err)
	}
	return k
}
