package overhttp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/weirprom"
)

// A service is something that answers on a port of its own.
type service struct {
	name string // as in harness.Subject, like the next
	kind harness.Kind

	// open starts it with a limit for each key. stop ends it.
	open func(l weir.Limit) (addr string, stop func() error, err error)
}

const (
	emptyName = "empty handler"
	policy    = "bench"
)

// services returns all, weir first.
func services() []service {
	return []service{
		{"weir /v1/check", harness.Weir, openWeir},
		{emptyName + ", body decoded", harness.Floor, func(weir.Limit) (string, func() error, error) { return openEmpty(decode) }},
		{emptyName + ", body ignored", harness.Floor, func(weir.Limit) (string, func() error, error) { return openEmpty(ignore) }},
	}
}

// openWeir starts the daemon as weir serve does, with its log at the usual level and
// thrown away.
func openWeir(l weir.Limit) (string, func() error, error) {
	table, err := memstore.New(memstore.Config{})
	if err != nil {
		return "", nil, err
	}
	listening := make(chan string, 1)
	cfg := server.Config{
		HTTP: server.Listener{Address: "127.0.0.1:0"}, Limiter: table, Log: slog.New(slog.NewJSONHandler(io.Discard, nil)),
		OnListen: func(b server.Bound) { listening <- b.HTTP.String() },
		Live:     server.Live{Policies: []ruleset.Policy{{Name: policy, Limits: []ruleset.Limit{{Limit: l}}}}},
	}
	cfg.Collectors = append(cfg.Collectors, weirprom.NewMemstore(table.Stats))
	s, err := server.New(cfg)
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	select {
	case addr := <-listening:
		return addr, func() error { cancel(); return <-ended }, nil
	case err := <-ended:
		cancel()
		return "", nil, err
	}
}

// openEmpty serves a handler with the daemon's settings of http.Server.
func openEmpty(h http.HandlerFunc) (string, func() error, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{
		Handler:           h,
		Protocols:         protocols,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       8 * time.Second,
		WriteTimeout:      15 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    64 << 10,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 256, MaxReadFrameSize: 64 << 10},
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	return l.Addr().String(), func() error {
		closed := s.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return closed
	}, nil
}

// constant is as long as an answer of weir.
var constant = []byte(`{"allowed":true,"policy":"` + policy + `","limited_by":"","limit":1000000,"remaining":999999,` +
	`"retry_after_ms":0,"reset_after_ms":1,"reason":"admitted"}` + "\n")

// decode reads the body with encoding/json and answers the same to everything.
func decode(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Policy string `json:"policy"`
		Key    string `json:"key"`
		Cost   *int64 `json:"cost"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Key == "" {
		http.Error(w, "bad body", http.StatusBadRequest)
		return
	}
	ignore(w, r)
}

// ignore answers the same to everything, and leaves the body to net/http.
func ignore(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Write(constant) // an error means that the caller is gone
}
