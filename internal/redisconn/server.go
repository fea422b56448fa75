package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// The oldest Redis that will do. Before it, CLIENT TRACKING and RESP3 had flaws.
const (
	leastMajor = 6
	leastMinor = 2
)

// server is a server's description of itself.
type server struct {
	version  string // redis_version
	mode     string // redis_mode: standalone, sentinel or cluster
	cluster  bool
	primary  string // of a replica: host:port
	readOnly bool   // a replica that takes no writes
}

// askServer asks a server with data about itself.
func (c Config) askServer(ctx context.Context, addr string) (server, error) {
	text, err := c.ask(ctx, addr, "INFO").ToString()
	if err != nil {
		return server{}, c.wrap(ctx, addr, err)
	}
	return parseInfo(text), nil
}

// askSentinel asks a Sentinel for the primary's address.
func (c Config) askSentinel(ctx context.Context, addr string) (string, error) {
	s := c
	s.Username, s.Password, s.DB = c.SentinelUsername, c.SentinelPassword, 0
	where, err := s.ask(ctx, addr, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", c.Sentinel).AsStrSlice()
	switch {
	case rueidis.IsRedisNil(err):
		return "", fmt.Errorf("redisconn: Sentinel %s: it knows no primary by the name %q", addr, c.Sentinel)
	case err != nil && strings.Contains(err.Error(), "unknown command"):
		return "", fmt.Errorf("redisconn: %s: it is no Sentinel, but Sentinel is set to %q (%w)", addr, c.Sentinel, err)
	case err != nil:
		return "", s.wrap(ctx, "Sentinel "+addr, err)
	case len(where) != 2:
		return "", fmt.Errorf("redisconn: Sentinel %s: it says that %q is at %q", addr, c.Sentinel, where)
	}
	return net.JoinHostPort(where[0], where[1]), nil
}

// ask sends one command on a connection of its own.
func (c Config) ask(ctx context.Context, addr string, command ...string) rueidis.RedisResult {
	o := c.oneOptions(&dialer{ctx: ctx}, addr)
	o.AlwaysPipelining = false // so that the deadline closes the connection
	client, err := rueidis.NewClient(o)
	if client != nil {
		defer client.Close()
	}
	if err != nil {
		return rueidis.NewErrorResult(err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	return client.Do(ctx, client.B().Arbitrary(command...).Build())
}

// infoFields reads the lines name:value of INFO.
func infoFields(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// parseInfo parses a server's INFO.
func parseInfo(text string) (s server) {
	fields := infoFields(text)
	s.version = fields["redis_version"] // Valkey has it, too
	s.mode = fields["redis_mode"]
	s.cluster = fields["cluster_enabled"] == "1"
	if fields["role"] == "slave" {
		s.primary = net.JoinHostPort(fields["master_host"], fields["master_port"])
		s.readOnly = fields["slave_read_only"] != "0"
	}
	return s
}

// check says why weir cannot work with a server.
func (c Config) check(s server) error {
	if err := checkVersion(s.version); err != nil {
		return err
	}
	switch {
	case s.mode == "sentinel":
		return errors.New("it is a Sentinel: Sentinel must be set to the name of the primary")
	case s.cluster:
		return nil // which finds the masters
	case s.readOnly && c.Sentinel != "":
		return fmt.Errorf("it is a replica of %s, although the Sentinel calls it the primary: "+
			"a failover may be going on", s.primary)
	case s.readOnly:
		return fmt.Errorf("it is a read-only replica of %s, and weir has to write", s.primary)
	case c.Sentinel == "" && len(c.Addrs) > 1:
		return fmt.Errorf("it is no cluster, so there must be one address, not %d", len(c.Addrs))
	}
	return nil
}

func checkVersion(version string) error {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, err1 := strconv.Atoi(major)
	y, err2 := strconv.Atoi(minor)
	switch {
	case version == "":
		return errors.New("INFO has no redis_version: is it Redis?")
	case err1 != nil || err2 != nil:
		return fmt.Errorf("INFO has redis_version %q, which is not a version", version)
	case x < leastMajor || x == leastMajor && y < leastMinor:
		//lint:ignore ST1005 it is a name
		return fmt.Errorf("Redis %s is too old: %d.%d or later is needed", version, leastMajor, leastMinor)
	}
	return nil
}
