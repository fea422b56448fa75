package server

import (
	"testing"

	"github.com/weirlimit/weir"
)

func TestDefaultPolicy(t *testing.T) {
	p := DefaultPolicy()
	if l := p.Limits()[0]; p.Name() != "default" || len(p.Limits()) != 1 || l.String() != "100 per 1s (gcra)" || l.Burst != 100 {
		t.Errorf("policy %q with %v", p.Name(), p.Limits())
	}
}

func TestNewTellsEveryProblem(t *testing.T) {
	_, err := New(Config{
		HTTP:     "0.0.0.0:8080",
		MaxConns: -1,
		Policies: []*weir.Policy{DefaultPolicy(), nil, DefaultPolicy()},
	})
	wantError(t, err,
		`HTTP "0.0.0.0:8080": is not loopback`, "clients cannot be configured yet",
		"Limiter: is missing", "MaxConns -1", "Policies[1]: is nil", `Policies[2]: the name "default" is taken`)
}

func TestLoopbackOnly(t *testing.T) {
	tests := []struct{ http, problem string }{
		{"", ""},
		{"127.0.0.1:8080", ""},
		{"127.0.0.1:0", ""},
		{"localhost:8080", ""},
		{"LocalHost:8080", ""},
		{"[::1]:8080", ""},
		{"127.1.2.3:8080", ""},
		{"0.0.0.0:8080", "is not loopback"},
		{"[::]:8080", "is not loopback"},
		{":8080", "is not loopback"},
		{"10.0.0.1:8080", "is not loopback"},
		{"192.0.2.1:8080", "is not loopback"},
		{"example.com:8080", "is not loopback"},
		{"localhost.example.com:8080", "is not loopback"},
		{"127.0.0.1", "must be host:port"},
		{"::1:8080", "must be host:port"},
		{"8080", "must be host:port"},
		{"127.0.0.1:http", "the port must be a number"},
		{"127.0.0.1:65536", "the port must be a number"},
		{"127.0.0.1:", "the port must be a number"},
	}
	for _, tt := range tests {
		t.Run(tt.http, func(t *testing.T) {
			_, err := New(Config{HTTP: tt.http, Limiter: frozenTable(t)})
			if tt.problem == "" && err != nil {
				t.Error(err)
			}
			if tt.problem != "" {
				wantError(t, err, tt.problem)
			}
		})
	}
}
