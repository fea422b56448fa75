package redisconn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/rueidis"
)

// Conn is a set of connections to Redis. Its methods and its Client may
// be used by many goroutines at once.
type Conn struct {
	// Client sends commands. The package comment says what to expect of it. Close it
	// by Conn.Close.
	Client rueidis.Client

	// Cluster says that keys lie on several servers, so that those of one command must
	// share a slot; see [Slot].
	Cluster bool

	// Version is Redis's, for example "7.0.15", or that of the Redis that a Valkey is
	// compatible with.
	Version string

	config  Config
	watches context.Context // of all watches
	end     context.CancelFunc
	wg      sync.WaitGroup // of all watches
}

// Open connects to Redis and checks that weir can use it: the server replies, is
// recent enough, accepts the login, and is not a replica. It tries each address once and returns
// the errors of all if none is usable. ctx bounds Open; the Conn outlives it.
func Open(ctx context.Context, c Config) (*Conn, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	found, err := c.find(ctx)
	if err != nil {
		return nil, err
	}
	client, err := c.connect(ctx, found)
	if err != nil {
		return nil, c.wrap(ctx, strings.Join(c.Addrs, ", "), err)
	}
	conn := &Conn{Client: client, Cluster: found.cluster, Version: found.version, config: c}
	conn.watches, conn.end = context.WithCancel(context.Background())
	return conn, nil
}

// find returns the first server that will do.
func (c Config) find(ctx context.Context) (server, error) {
	var problems []error
	for _, addr := range c.Addrs {
		found, err := c.findAt(ctx, addr)
		if err == nil {
			return found, nil
		}
		problems = append(problems, err)
		if ctx.Err() != nil {
			break
		}
	}
	return server{}, errors.Join(problems...)
}

func (c Config) findAt(ctx context.Context, addr string) (server, error) {
	if c.Sentinel != "" {
		primary, err := c.askSentinel(ctx, addr)
		if err != nil {
			return server{}, err
		}
		addr = primary
	}
	found, err := c.askServer(ctx, addr)
	if err != nil {
		return server{}, err
	}
	if err := c.check(found); err != nil {
		return server{}, fmt.Errorf("redisconn: %s: %w", addr, err)
	}
	return found, nil
}

// connect makes the client for what was found.
func (c Config) connect(ctx context.Context, found server) (rueidis.Client, error) {
	d := &dialer{ctx: ctx}
	o := c.options(d)
	o.ForceSingleClient = !found.cluster && c.Sentinel == ""
	client, err := rueidis.NewClient(o)
	if err != nil {
		if client != nil {
			client.Close()
		}
		return nil, err
	}
	if found.cluster && client.Mode() != rueidis.ClientModeCluster {
		client.Close()
		return nil, errors.New("it is a cluster, but does not report its slots")
	}
	d.loose.Store(true)
	if err := ctx.Err(); err != nil { // it may have closed the connections before
		client.Close()
		return nil, err
	}
	return client, nil
}

// Direct returns a client of its own for one goroutine that sends many commands at a
// time: it writes and reads by itself, where Client hands everything to two goroutines
// of its own. Commands of two goroutines at once would make it do the same. Its commands
// must not have deadlines: those would close the connection. The caller closes it. For a
// Cluster it returns Client, which is no slower there.
func (c *Conn) Direct(ctx context.Context) (client rueidis.Client, closing func(), err error) {
	if c.Cluster {
		return c.Client, func() {}, nil
	}
	d := &dialer{ctx: ctx, polite: true}
	o := c.config.options(d)
	o.ForceSingleClient = c.config.Sentinel == ""
	o.PipelineMultiplex = multiplex(1)
	o.AlwaysPipelining = false
	client, err = rueidis.NewClient(o)
	if err != nil {
		if client != nil {
			client.Close()
		}
		return nil, nil, c.config.wrap(ctx, strings.Join(c.config.Addrs, ", "), err)
	}
	d.loose.Store(true)
	return client, client.Close, nil
}

// Close ends all watches and closes all connections. It waits for the replies to commands
// on the way, a second for each connection at most. With a Cluster, all that goes on for a
// moment after Close has returned, and for up to five seconds if the Cluster has just changed.
func (c *Conn) Close() {
	c.end()
	c.wg.Wait()
	c.Client.Close()
}
