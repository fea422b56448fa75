package client_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/gen/weir/v1/weirv1connect"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/server"
)

func TestBadConfig(t *testing.T) {
	for _, tt := range []struct {
		cfg  client.Config
		says string
	}{
		{client.Config{Address: "ftp://x"}, `must be like "host:port"`},
		{client.Config{Address: "http://"}, `must be like "host:port"`},
		{client.Config{Address: "http://user:word@host"}, `must be like "host:port"`},
		{client.Config{Address: "unix:"}, "path of a socket"},
		{client.Config{Address: "host:1", TLS: &tls.Config{}}, "https://"},
		{client.Config{Conns: -1}, "negative"},
		{client.Config{Timeout: -1}, "negative"},
		{client.Config{MaxWaiting: -1}, "negative"},
	} {
		if c, err := client.New(tt.cfg); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%+v: %v, %v, want %q", tt.cfg, c, err, tt.says)
		}
	}
}

// TestAccess: a daemon with clients wants a token, which may change, and says who may do what.
func TestAccess(t *testing.T) {
	const good = "alice-0123456789abcdef0123456789abcdef"
	p, other := newPolicy(t, "p", weir.Limit{Rate: 9, Per: weir.Every(time.Hour)}), newPolicy(t, "other", weir.Limit{Rate: 9, Per: weir.Every(time.Hour)})
	socket := filepath.Join(t.TempDir(), "weir.sock")
	daemon(t, server.Config{
		HTTP: server.Listener{Address: "unix:" + socket}, Limiter: apitest.Table(t, nil),
		Live: server.Live{Policies: rules(p, other), Clients: []server.Client{{Name: "alice", Tokens: []secret.Secret{secret.New(good)}, Grants: server.Grants{Policies: []string{"p"}}}}},
	})
	token := "wrong"
	c := dial(t, client.Config{Address: "unix:" + socket, Token: func() string { return token }})
	_, err := c.Take(ctx, p, "k", 1)
	if denied, ok := errors.AsType[*client.AnswerError](err); !ok || !denied.Access {
		t.Errorf("with a wrong token: %v", err)
	}
	token = good
	if d, err := c.Take(ctx, p, "k", 1); err != nil || !d.Allowed {
		t.Errorf("with the right one: %v, %v", d, err)
	}
	_, err = c.Take(ctx, other, "k", 1)
	if denied, ok := errors.AsType[*client.AnswerError](err); !ok || denied.Address != "unix:"+socket || errors.Is(err, weir.ErrUnknown) {
		t.Errorf("under another's policy: %v", err)
	}
}

// TestTLS: a daemon behind https, and one that sends its callers elsewhere.
func TestTLS(t *testing.T) {
	var s service
	mux := http.NewServeMux()
	mux.Handle(weirv1connect.NewLimiterServiceHandler(&s))
	secure := httptest.NewUnstartedServer(mux)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	p := newPolicy(t, "p", weir.Limit{Rate: 9, Per: weir.Every(time.Hour)})
	s.checkBatch = admit
	trusting := dial(t, client.Config{Address: secure.URL, TLS: &tls.Config{RootCAs: roots}})
	if d, err := trusting.Take(ctx, p, "k", 1); err != nil || !d.Allowed {
		t.Errorf("%v, %v", d, err)
	}
	if _, err := dial(t, client.Config{Address: secure.URL}).Take(ctx, p, "k", 1); !isUnavailable(err) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate of nobody: %v", err)
	}
	plain := httptest.NewServer(mux)
	defer plain.Close()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, plain.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer elsewhere.Close()
	if _, err := dial(t, client.Config{Address: elsewhere.URL, Token: func() string { return "t" }}).Take(ctx, p, "k", 1); err == nil {
		t.Error("followed a redirection")
	}
}

// isUnavailable reports whether an error says that nothing was charged.
func isUnavailable(err error) bool {
	return errors.Is(err, weir.ErrUnavailable) && !errors.Is(err, weir.ErrUnknown)
}

// TestRefusedHandshake: without a TLS connection nothing is charged, whoever refuses it.
func TestRefusedHandshake(t *testing.T) {
	p := newPolicy(t, "p", weir.Limit{Rate: 9, Per: weir.Every(time.Hour)})
	var calls atomic.Int64
	count := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) })
	plain := httptest.NewServer(count)
	defer plain.Close()
	picky := httptest.NewUnstartedServer(count)
	picky.Config.ErrorLog = log.New(io.Discard, "", 0)
	picky.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	picky.StartTLS()
	defer picky.Close()
	roots := x509.NewCertPool()
	roots.AddCert(picky.Certificate())
	for name, cfg := range map[string]client.Config{
		"no TLS":              {Address: "https://" + plain.Listener.Addr().String()},
		"another host":        {Address: picky.URL, TLS: &tls.Config{RootCAs: roots, ServerName: "other.example"}},
		"wants a certificate": {Address: picky.URL, TLS: &tls.Config{RootCAs: roots, MaxVersion: tls.VersionTLS12}},
	} {
		if _, err := dial(t, cfg).Take(ctx, p, "k", 1); !isUnavailable(err) {
			t.Errorf("%s: %v, want an ErrUnavailable", name, err)
		}
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("%d calls arrived", n)
	}
}

func TestBadInput(t *testing.T) {
	c := dial(t, client.Config{Address: "127.0.0.1:1"}) // nobody is asked
	p, slots := newPolicy(t, "p", weir.Limit{Rate: 9, Per: weir.Every(time.Hour)}), newPolicy(t, "slots", weir.Limit{Rate: 9, Algorithm: weir.Concurrency})
	for _, tt := range []struct {
		op     weir.Op
		charge weir.Charge
		says   string
	}{
		{weir.TakeEach, weir.Charge{Policy: p, Key: "k", Cost: -1}, "cost -1"},
		{weir.TakeEach, weir.Charge{Policy: p, Key: strings.Repeat("k", 257)}, "key of 257 bytes"},
		{weir.TakeEach, weir.Charge{Policy: p, Key: "\xff"}, "not UTF-8"},
		{weir.TakeEach, weir.Charge{Policy: slots, Key: "k"}, "concurrency"},
		{weir.DebitEach, weir.Charge{Policy: slots, Key: "k"}, "concurrency"},
		{weir.TakeEach, weir.Charge{Key: "k"}, "policy"},
		{weir.ResetEach, weir.Charge{Policy: p, Key: "k"}, "operators"},
		{99, weir.Charge{Policy: p, Key: "k"}, "known operation"},
	} {
		err := c.Do(ctx, &weir.Batch{Op: tt.op, Charges: []weir.Charge{tt.charge}})
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v: %v, want %q", tt, err, tt.says)
		}
		if tt.op == weir.TakeEach && tt.charge.Policy != nil {
			if _, err := c.Take(ctx, tt.charge.Policy, tt.charge.Key, tt.charge.Cost); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Take %v: %v, want %q", tt, err, tt.says)
			}
		}
	}
	if err := c.Set(ctx, p, p); !errors.Is(err, client.ErrOperator) {
		t.Error(err)
	}
	many := weir.Batch{Op: weir.TakeAll, Charges: make([]weir.Charge, 1001)}
	for i := range many.Charges {
		many.Charges[i] = weir.Charge{Policy: p, Key: "k", Cost: 1}
	}
	if err := c.Do(ctx, &many); err == nil || !strings.Contains(err.Error(), "1000 fit one request") {
		t.Error(err)
	}
}
