package target

import (
	"context"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain makes the certificate of httptest's servers one that this process
// trusts, for example.com and 127.0.0.1, and looks for what was left behind.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "target")
	if err != nil {
		panic(err)
	}
	srv := httptest.NewTLSServer(nil)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	srv.Close()
	file := filepath.Join(dir, "roots.pem")
	if err := os.WriteFile(file, cert, 0o600); err != nil {
		panic(err)
	}
	os.Setenv("SSL_CERT_FILE", file)
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// open opens a target and closes it with the test.
func open(t testing.TB, c Config) *Target {
	t.Helper()
	target, err := Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := target.Close(); err != nil {
			t.Error(err)
		}
	})
	return target
}

// call opens a target and makes call 7 of worker 3.
func call(t testing.TB, c Config) Result {
	t.Helper()
	return open(t, c).Caller(3).Call(context.Background(), 7)
}

// impatient returns a caller with a short timeout. Config.Timeout would be Open's, too, and that
// takes its time on a busy machine.
func impatient(target *Target) *Caller {
	caller := target.Caller(0)
	caller.timeout = 30 * time.Millisecond
	return caller
}

// wantRefused expects Open to fail with an error that has all parts.
func wantRefused(t *testing.T, c Config, parts ...string) {
	t.Helper()
	target, err := Open(context.Background(), c)
	if err == nil {
		target.Close()
		t.Fatalf("Open succeeded; want an error with %q", parts)
	}
	wantParts(t, err, parts...)
}

func wantParts(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q lacks %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("error %q has a secret", err)
	}
}

// wantCode expects a call to have failed without an answer.
func wantCode(t *testing.T, r Result, code string) {
	t.Helper()
	if r.Code != code || r.OK || r.Err == nil {
		t.Errorf("got %+v, want no answer, %q", r, code)
	}
}

// wantAnswer expects a call to have had an answer.
func wantAnswer(t *testing.T, r Result, ok bool, code string) {
	t.Helper()
	if r.Code != code || r.OK != ok || r.Err != nil {
		t.Errorf("got %+v, want ok %v, %q", r, ok, code)
	}
}

// listen listens on a free port and handles each connection in turn, until the
// test ends. It returns the address.
func listen(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.SetDeadline(time.Now().Add(5 * time.Second))
			handle(conn)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// refusing is an address where nothing listens.
func refusing(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// quiet is for servers that complain about what tests do to them.
var quiet = log.New(io.Discard, "", 0)
