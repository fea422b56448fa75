package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/server"
)

// writeCertificate writes a certificate that has signed itself, and its key.
func writeCertificate(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "weir"}, IsCA: true,
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0), BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "cert.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})))
	write(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	writeCertificate(t, dir)
	name := filepath.Join(dir, "weir.yaml")
	write(t, name, `
listen:
  http: {tls: {cert_file: cert.pem, key_file: key.pem, client_ca_file: cert.pem, require_client: true}}
  admin: unix:/run/weir/admin.sock
store:
  kind: redis
  redis: {addrs: ["redis.example:6379"], tls: {ca_file: cert.pem, cert_file: cert.pem, key_file: key.pem}}
`)
	c, err := Load(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	want := server.Listener{Address: "127.0.0.1:8080", TLS: &server.TLS{CertFile: cert, KeyFile: key, ClientCAFile: cert, RequireClient: true}}
	if got := c.Server().HTTP; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %+v", got, got.TLS)
	}
	if got := c.Server().Admin.Address; got != "unix:/run/weir/admin.sock" {
		t.Error(got)
	}
	redis := c.Store.Redis.Redis
	if redis.TLS == nil || redis.TLS.ServerName != "redis.example" || redis.TLS.RootCAs == nil || len(redis.TLS.Certificates) != 1 {
		t.Errorf("%+v", redis.TLS)
	}
	if got, want := slices.Sorted(maps.Keys(c.loaded)), []string{cert, key, name}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v are watched, not %v", got, want)
	}
}

func TestTLSProblems(t *testing.T) {
	dir := t.TempDir()
	writeCertificate(t, dir)
	other := t.TempDir()
	writeCertificate(t, other)
	name := filepath.Join(dir, "weir.yaml")
	for text, want := range map[string]string{
		"listen: {http: {tls: {cert_file: cert.pem, key_file: %s/key.pem}}}":                                               "private key does not match",
		"listen: {http: {tls: {cert_file: cert.pem, key_file: key.pem, client_ca_file: %s/key.pem}}}":                      "has no certificate in it",
		"listen: {http: {address: 'unix:/x', tls: {cert_file: cert.pem, key_file: %s/key.pem}}}":                           "a socket needs no TLS",
		"store: {kind: redis, redis: {tls: {cert_file: %s/cert.pem}}}":                                                     "need each other",
		"store: {kind: redis, redis: {tls: {cert_file: cert.pem, key_file: %s/key.pem}}}":                                  "private key does not match",
		"store: {kind: redis, redis: {addrs: ['rediss://127.0.0.1:1'], tls: {cert_file: cert.pem, key_file: %s/key.pem}}}": "is in the URL of addrs, too",
	} {
		write(t, name, fmt.Sprintf(text, other))
		if _, err := Load(name, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	// Of authorities beyond what is read, none would be trusted.
	cert, err := os.ReadFile(filepath.Join(dir, "cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "large.pem"), strings.Repeat(string(cert), maxBytes/len(cert)+1))
	write(t, name, "store: {kind: redis, redis: {tls: {ca_file: large.pem}}}")
	if _, err := Load(name, nil); err == nil || !strings.Contains(err.Error(), "large.pem: has more than 1048576 bytes") {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(dir, "cert.pem")); err != nil {
		t.Fatal(err)
	}
	write(t, name, "listen: {http: {tls: {cert_file: cert.pem, key_file: key.pem}}}")
	if _, err := Load(name, nil); err == nil || !strings.Contains(err.Error(), "listen.http.tls.cert_file: "+dir+"/cert.pem: no such file") {
		t.Error(err)
	}
}
