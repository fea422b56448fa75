package cli

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/redistest"
)

// certificates returns files with a certificate for 127.0.0.1, its key and its authority: those of
// a Redis, which is not used otherwise.
func certificates(t *testing.T) (cert, key, authority string) {
	t.Helper()
	redis := redistest.Start(t, redistest.TLS())
	cert, key = redis.CertFiles()
	return cert, key, redis.CAFile()
}

// startWith starts a daemon with a configuration.
func startWith(t *testing.T, config string, env []string, args ...string) *daemon {
	t.Helper()
	file := filepath.Join(t.TempDir(), "weir.yaml")
	write(t, file, config)
	name, value := noRaceSleep()
	d, err := startDaemon(t.TempDir(), append(env, name+"="+value), append([]string{"--config", file}, args...)...)
	t.Cleanup(func() {
		d.kill()
		if t.Failed() {
			t.Logf("the log of a daemon:\n%s", d.stderr.String())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A daemon whose certificate is not trusted was not called, and --ca makes it trusted.
func TestCheckOverTLS(t *testing.T) {
	t.Parallel()
	cert, key, authority := certificates(t)
	d := startWith(t, fmt.Sprintf("listen:\n  http: {tls: {cert_file: %q, key_file: %q}}\npolicies:\n  default:\n    limits: [{rate: 100, per: 1h}]\n", cert, key), nil)
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"", exitFailure, "certificate signed by unknown authority; trust the authority that signed it by --ca FILE"},
		{"--ca " + authority, exitOK, "allowed: 99 of 100 remain"},
		{"--ca " + key, exitUsage, "has no certificate, which would begin with"},
		{"--ca none.pem", exitUsage, "--ca: open none.pem: no such file or directory"},
		{"--address 127.0.0.1:1 --ca " + authority, exitFailure, "it must begin with https:// for TLS"},
	} {
		var stdout, stderr bytes.Buffer
		args := append([]string{"check", "default", "alice", "--address", d.url}, strings.Fields(tt.args)...)
		code := Main(t.Context(), args, &stdout, &stderr)
		text := stdout.String() + stderr.String()
		if code != tt.code || !strings.Contains(text, tt.want) || strings.Contains(text, "outcome is unknown") {
			t.Errorf("%q: exit code %d, want %d and %q: %s", tt.args, code, tt.code, tt.want, text)
		}
	}
}
