package redisconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/secret"
)

const defaultPort = "6379"

// Parse reads where Redis is, as the flag --redis has it:
//
//	127.0.0.1:6379                      one server, or a node of a Cluster
//	10.0.0.1:6379,10.0.0.2:6379         several nodes of a Cluster
//	redis://user:password@host:6379/0   with a login and the number of a database
//	redis://:password@host              the user is "default", the port 6379
//	rediss://…                          the same over TLS
//	/run/redis.sock, unix:///run/redis.sock
//
// In user and password, % begins an escape as in all URLs: %25 is a percent sign, %40
// an @. Errors name the part that is wrong and quote nothing, because any part of a
// text that is wrong may be a password.
func Parse(text string) (Config, error) {
	c, err := parse(text)
	if err != nil {
		return Config{}, fmt.Errorf("redisconn: address of Redis: %w", err)
	}
	return c, nil
}

var (
	errNoText   = errors.New("it is empty")
	errScheme   = errors.New("the part before :// must be redis, rediss or unix")
	errNoScheme = errors.New("with a user or a password it must have the form redis://user:password@host:port")
	errSocket   = errors.New("after unix:// must come the path of a socket that begins with /")
	errLogin    = errors.New("there is no password before the @: want redis://user:password@host:port, " +
		"or redis://:password@host:port for the user default")
	errEscape = errors.New("in the user or the password is a % that begins no escape: write it as %25")
	errQuery  = errors.New("after the host there must be no ? and no #")
	errDB     = errors.New("after the last / must be the number of a database")
)

func parse(text string) (Config, error) {
	if text == "" {
		return Config{}, errNoText
	}
	if isSocket(text) {
		return parseSocket(text)
	}
	scheme, rest, isURL := strings.Cut(text, "://")
	switch {
	case !isURL && strings.Contains(text, "@"):
		return Config{}, errNoScheme
	case !isURL:
		addrs, err := parseAddrs(text)
		return Config{Addrs: addrs}, err
	case scheme == "unix":
		return parseSocket(rest)
	case scheme == "redis", scheme == "rediss":
		return parseURL(rest, scheme == "rediss")
	}
	return Config{}, errScheme
}

func parseSocket(path string) (Config, error) {
	if !isSocket(path) || checkAddr(path) != nil {
		return Config{}, errSocket
	}
	return Config{Addrs: []string{path}}, nil
}

// parseURL reads what follows redis://. It does so by hand because url.Parse takes one
// host only and quotes the URL in its errors.
func parseURL(rest string, secure bool) (c Config, err error) {
	// A password may have any sign in it, what follows none of these.
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		if c.Username, c.Password, err = parseLogin(rest[:at]); err != nil {
			return Config{}, err
		}
		rest = rest[at+1:]
	}
	if strings.ContainsAny(rest, "?#") {
		return Config{}, errQuery
	}
	hosts, db, _ := strings.Cut(rest, "/")
	if c.DB, err = parseDB(db); err != nil {
		return Config{}, err
	}
	list := strings.Split(hosts, ",")
	for i := range list {
		list[i] = addPort(list[i])
	}
	if c.Addrs, err = parseAddrs(strings.Join(list, ",")); err != nil {
		return Config{}, err
	}
	if secure {
		c.TLS = newTLS(c.Addrs)
	}
	return c, nil
}

func parseLogin(text string) (user string, password secret.Secret, err error) {
	name, word, _ := strings.Cut(text, ":")
	if word == "" {
		return "", password, errLogin
	}
	user, err = url.PathUnescape(name)
	if err != nil {
		return "", password, errEscape // err quotes the escape
	}
	word, err = url.PathUnescape(word)
	if err != nil {
		return "", password, errEscape
	}
	return user, secret.New(word), nil
}

// parseDB reads digits only: no sign, no zero in front of others.
func parseDB(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || strconv.FormatUint(n, 10) != text {
		return 0, errDB
	}
	return int(n), nil
}

// parseAddrs reads addresses that are separated by commas.
func parseAddrs(text string) ([]string, error) {
	addrs := strings.Split(text, ",")
	for i, addr := range addrs {
		err := checkAddr(addr)
		switch {
		case err == nil && isSocket(addr):
			return nil, errors.New("a socket must be the only address")
		case err != nil && len(addrs) == 1:
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("number %d of %d: %w", i+1, len(addrs), err)
		}
	}
	return addrs, nil
}

// addPort adds the port that URLs may leave out.
func addPort(host string) string {
	if strings.LastIndex(host, ":") > strings.LastIndex(host, "]") {
		return host // it has one
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inner, "]")
	}
	return net.JoinHostPort(host, defaultPort)
}

// newTLS returns a TLS configuration. With one address all servers of a Cluster are to
// have a certificate for its host: they are known by IP addresses, which seldom stand in
// certificates.
func newTLS(addrs []string) *tls.Config {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(addrs) == 1 {
		t.ServerName, _, _ = net.SplitHostPort(addrs[0]) // checkAddr has done so before
	}
	return t
}
