package redistier

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redisconn"
	"github.com/weirlimit/weir/store/redisstore"
	"github.com/weirlimit/weir/tiered"
)

// Config configures a Bus.
type Config struct {
	// Redis is the server, the same as the store's. Its Conns is ignored: a Bus has a
	// connection of its own, so that messages do not queue behind decisions.
	Redis redisstore.Server

	// Prefix is the prefix of the key and the channel. It must be the store's and must
	// not contain braces. The default is "weir:".
	Prefix string

	// Every is the interval between heartbeats, which count nodes and compare clocks. It
	// is between 10 ms and 1 min, and must be the same on all nodes: a node without a
	// heartbeat for 3.5 × Every is not counted. The default is 2 s.
	Every time.Duration

	// Now is for tests. The default is weir.Now.
	Now func() weir.Instant
}

// The defaults of a Config.
const (
	DefaultPrefix = "weir:"
	DefaultEvery  = 2 * time.Second

	leastEvery = 10 * time.Millisecond
	mostEvery  = time.Minute
)

// Validate returns everything that is wrong with the configuration.
func (c Config) Validate() error {
	problems := []error{c.Redis.Validate()}
	if strings.ContainsAny(c.Prefix, "{}") {
		problems = append(problems, fmt.Errorf("redistier: Prefix %q: must not have braces in it", c.Prefix))
	}
	if c.Every != 0 && (c.Every < leastEvery || c.Every > mostEvery) {
		problems = append(problems, fmt.Errorf("redistier: Every %v: must be between %v and %v", c.Every, leastEvery, mostEvery))
	}
	return errors.Join(problems...)
}

// withDefaults returns a Config without zero values that have a meaning.
func (c Config) withDefaults() Config {
	c.Redis.Conns = 1
	if c.Redis.Timeout == 0 {
		c.Redis.Timeout = redisconn.DefaultTimeout
	}
	if c.Redis.DialTimeout == 0 {
		c.Redis.DialTimeout = redisconn.DefaultDialTimeout
	}
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.Every == 0 {
		c.Every = DefaultEvery
	}
	if c.Now == nil {
		c.Now = weir.Now
	}
	return c
}

func (c Config) nodesKey() string { return c.Prefix + "nodes" }

// channel returns the Pub/Sub channel. Redis's channels are shared by all databases, so the
// name contains the database.
func (c Config) channel() string {
	if c.Redis.DB == 0 {
		return c.Prefix + "tier"
	}
	return fmt.Sprintf("%stier:%d", c.Prefix, c.Redis.DB)
}

// A redisstore.Store implements all optional interfaces of a tier's store.
var _ interface {
	tiered.Partitioned
	tiered.Timed
	tiered.TimeoutSetter
	tiered.PolicyTracker
} = (*redisstore.Store)(nil)
