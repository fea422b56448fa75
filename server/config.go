package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/weirlimit/weir"
)

// Config says what a Server serves, and where. Only Limiter is required.
type Config struct {
	// HTTP is the address to listen on, host:port. The default is
	// DefaultHTTP. The host must be loopback: localhost, 127.0.0.1 or [::1].
	// Port 0 takes a free one; OnListen tells which.
	HTTP string

	// Limiter decides.
	Limiter weir.Limiter

	// Policies are those that callers may name. The default is DefaultPolicy
	// alone.
	Policies []*weir.Policy

	// MaxConns is how many connections may be open at once; further ones wait
	// to be accepted. The default is 4096.
	MaxConns int

	// Log takes the daemon's messages. Keys appear at debug level only. The
	// default is slog.Default.
	Log *slog.Logger

	// Version is shown to people. The default is "devel".
	Version string

	// OnListen, if set, is called once by Run when the address is bound, before
	// the first request is answered.
	OnListen func(http net.Addr)
}

// DefaultHTTP is where a Server listens unless told otherwise.
const DefaultHTTP = "127.0.0.1:8080"

const defaultMaxConns = 4096

// DefaultPolicy returns the policy that is served when no other is configured:
// "default", 100 per second with a burst of 100, for each key.
func DefaultPolicy() *weir.Policy {
	p, err := weir.NewPolicy("default", weir.Limit{Rate: 100, Per: weir.Every(time.Second), Burst: 100})
	if err != nil { // the numbers are constants
		panic(err)
	}
	return p
}

// Validate returns everything that is wrong with the configuration, joined.
func (c Config) Validate() error {
	var problems []error
	if c.HTTP != "" {
		problems = append(problems, checkLoopback(c.HTTP))
	}
	if c.Limiter == nil {
		problems = append(problems, errors.New("server: Limiter: is missing; memstore.New makes one"))
	}
	if c.MaxConns < 0 {
		problems = append(problems, fmt.Errorf("server: MaxConns %d: must not be negative", c.MaxConns))
	}
	problems = append(problems, checkPolicies(c.Policies))
	return errors.Join(problems...)
}

func checkPolicies(policies []*weir.Policy) error {
	var problems []error
	names := make(map[string]bool, len(policies))
	for i, p := range policies {
		if p == nil {
			problems = append(problems, fmt.Errorf("server: Policies[%d]: is nil", i))
			continue
		}
		if names[p.Name()] {
			problems = append(problems, fmt.Errorf("server: Policies[%d]: the name %q is taken by another policy", i, p.Name()))
		}
		names[p.Name()] = true
	}
	return errors.Join(problems...)
}

// normal returns the configuration with its defaults filled in.
func (c Config) normal() Config {
	if c.HTTP == "" {
		c.HTTP = DefaultHTTP
	}
	if len(c.Policies) == 0 {
		c.Policies = []*weir.Policy{DefaultPolicy()}
	}
	if c.MaxConns == 0 {
		c.MaxConns = defaultMaxConns
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Version == "" {
		c.Version = "devel"
	}
	if c.OnListen == nil {
		c.OnListen = func(net.Addr) {}
	}
	return c
}
