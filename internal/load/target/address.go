package target

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An address is a URL in two parts: where to connect to, which is fixed, and the
// tail, path and query, which may be a template.
type address struct {
	scheme string
	host   string        // without brackets
	port   string        // never empty
	given  string        // host and port as they were written
	user   *url.Userinfo // nil if there is none
	tail   string
}

// String shows where to connect to, and no more: user, path and query may be
// secrets.
func (a address) String() string { return a.scheme + "://" + a.hostPort() }

func (a address) hostPort() string { return net.JoinHostPort(a.host, a.port) }

// isTLS goes by the scheme's last letter: https, grpcs, rediss.
func (a address) isTLS() bool { return a.scheme != "redis" && strings.HasSuffix(a.scheme, "s") }

var defaultPorts = map[string]string{
	"http": "80", "https": "443", "grpc": "80", "grpcs": "443", "redis": "6379", "rediss": "6379",
}

// parseAddress splits a URL. Its errors do not quote what may be a password.
func parseAddress(raw string) (address, error) {
	if raw == "" {
		return address{}, errors.New("is missing")
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	scheme = strings.ToLower(scheme)
	if !ok || defaultPorts[scheme] == "" {
		return address{}, fmt.Errorf("must begin with one of %s://", strings.Join(Auto.schemes(), "://, "))
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	switch {
	case strings.Contains(authority, "{{"):
		return address{}, errors.New("has a variable in its host; variables belong to the path and the query")
	case strings.Contains(tail, "#"):
		return address{}, errors.New("has a fragment (#), which is never sent")
	}
	a := address{scheme: scheme, tail: tail}
	return a, a.setHost(authority)
}

// setHost reads what is between the scheme and the path.
func (a *address) setHost(authority string) error {
	u, err := url.Parse("http://" + authority)
	if err != nil {
		return errors.New("has a host, port or user that cannot be read; in passwords, write / ? # @ : as %2F %3F %23 %40 %3A")
	}
	a.host, a.port, a.given, a.user = u.Hostname(), u.Port(), u.Host, u.User
	if a.host == "" {
		return errors.New("has no host")
	}
	if a.port == "" {
		a.port = defaultPorts[a.scheme]
	}
	if n, err := strconv.ParseUint(a.port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("has port %s; ports are 1 to 65535", a.port)
	}
	return nil
}

// lookupTimeout is how long Loopback waits to learn where localhost is.
const lookupTimeout = 5 * time.Second

// Loopback says whether the host of the URL is this machine: 127.0.0.0/8, ::1, or
// localhost if it resolves to nothing else. Other names are not looked up: what
// they resolve to can change before the first connection.
func (c Config) Loopback() (bool, error) {
	a, err := parseAddress(c.URL)
	if err != nil {
		return false, fmt.Errorf("target: URL: %w", err)
	}
	if ip, err := netip.ParseAddr(a.host); err == nil {
		return ip.Unmap().IsLoopback(), nil
	}
	if !strings.EqualFold(strings.TrimSuffix(a.host, "."), "localhost") {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", a.host)
	if err != nil {
		return false, fmt.Errorf("target: where is %s: %w", a.host, err)
	}
	return onlyLoopback(found), nil
}

func onlyLoopback(found []netip.Addr) bool {
	foreign := func(ip netip.Addr) bool { return !ip.Unmap().IsLoopback() }
	return len(found) > 0 && !slices.ContainsFunc(found, foreign)
}

// Place returns where the target is, "http://127.0.0.1:8080", without what may be
// secret. It is empty if the URL makes no sense.
func (c Config) Place() string {
	a, err := parseAddress(c.URL)
	if err != nil {
		return ""
	}
	return a.String()
}
