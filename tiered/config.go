package tiered

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/compiled"
)

// Mode is how often the store is called.
type Mode uint8

// The modes. The package comment says when to use which, and states their bounds.
const (
	Exact  Mode = iota // for every charge that the deny cache does not answer
	Leased             // for blocks of units, which are then spent locally
	Async              // when an allowance is used up or has expired; usage is flushed in the background
)

var modeNames = [...]string{"exact", "leased", "async"}

// String returns the name that configurations use, such as "leased".
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// ParseMode is the inverse of String.
func ParseMode(name string) (Mode, error) {
	for i, n := range modeNames {
		if n == name {
			return Mode(i), nil
		}
	}
	return 0, fmt.Errorf("tiered: unknown mode %q: must be one of %q", name, modeNames[:])
}

// MarshalText returns String.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is ParseMode.
func (m *Mode) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMode(string(text))
	return err
}

// Config configures a Limiter.
type Config struct {
	// Store is the limiter that all nodes share. It must be set.
	//
	// A store may implement the optional interfaces Partitioned, Timed, TimeoutSetter and
	// PolicyTracker.
	Store weir.Limiter

	// Local holds the state of this node's shares, by which it decides while the store
	// is unavailable, for example a memstore.Table. It must be set and used by nothing else.
	// Its capacity should be about MaxKeys.
	Local weir.Limiter

	// Bus connects this node to the others. The default is none: then this node notices
	// resets and changed limits of other nodes only after MaxDeny, and Nodes should be
	// set if there are others.
	Bus Bus

	// Mode is how often the store is called. The default is Exact.
	Mode Mode

	// OnError says how to decide while the store is unavailable, for limits that do not
	// set it themselves. The default is weir.FailLocal.
	OnError weir.OnError

	// Nodes is the number of nodes that share the store. It determines this node's share
	// while the store is unavailable, and the size of leases. The default, 0, is the
	// number that Bus counts, or 1 without a Bus.
	Nodes int

	// Timeout bounds a decision of the store. A batch that needs several round trips,
	// one after the other, has that much for each, at most four times. A caller's deadline
	// shortens it, so that 5 ms are left to answer: of a deadline in 12 ms the store gets
	// 7 ms. Of a deadline in less than 10 ms it gets half. The default is 10 ms.
	Timeout time.Duration

	// MaxInFlight bounds the calls to the store that are in flight at once. Beyond it,
	// charges are decided by OnError. The default is 10,000.
	MaxInFlight int

	// MaxKeys bounds the keys for which this node holds denials, leases, allowances or
	// unsynced usage. Charges of other keys call the store one by one. The default is
	// 131,072, which take about 40 MB if all are in use.
	MaxKeys int

	// MaxDeny bounds how long a denial is cached, because refunds on other nodes are not
	// published. The default is 1 s.
	MaxDeny time.Duration

	// LeaseTTL is how long a lease lasts. The leased units of a node that crashes are
	// unavailable for that long. The default is 5 s, the minimum 100 ms.
	LeaseTTL time.Duration

	// FlushEvery is how often Async flushes unsynced usage. The default is 50 ms.
	FlushEvery time.Duration

	// MaxUnsynced bounds the unsynced usage of a key in Async mode: the units that this
	// node has granted and the store has not acknowledged. The default is a tenth of what
	// the policy admits at once, divided by the number of nodes, and at least 1.
	MaxUnsynced int64

	// OnUnreadable, unless it is nil, is called once for each key whose stored state the
	// store cannot read (weir.ErrState). keyHash identifies the key without revealing it.
	// Charges of the key are decided by OnError. OnUnreadable must return quickly.
	OnUnreadable func(policy, keyHash string, err error)

	// OnBreaker, unless it is nil, is called when the breaker of a partition of the store
	// opens, with the error that opened it, and when it closes. It must return quickly.
	OnBreaker func(partition int, open bool, why error)

	// Now and Random are for tests. The defaults are weir.Now and a random number
	// from 0 to 1.
	Now    func() weir.Instant
	Random func() float64
}

// The defaults of a Config.
const (
	DefaultTimeout     = 10 * time.Millisecond
	DefaultMaxInFlight = 10_000
	DefaultMaxKeys     = 1 << 17
	DefaultMaxDeny     = time.Second
	DefaultLeaseTTL    = 5 * time.Second
	DefaultFlushEvery  = 50 * time.Millisecond

	leastLeaseTTL = 100 * time.Millisecond
	mostKeys      = 1 << 26
)

// Validate returns all errors in the configuration, joined.
func (c Config) Validate() error {
	var problems []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf("tiered: "+format, args...))
		}
	}
	wrong(c.Store == nil, "Store: must be set")
	wrong(c.Local == nil, "Local: must be set")
	wrong(c.Mode > Async, "Mode %d: must be one of %q", uint8(c.Mode), modeNames[:])
	wrong(c.OnError > weir.FailClosed, "OnError %d: unknown value", uint8(c.OnError))
	wrong(c.Nodes < 0, "Nodes %d: must not be negative", c.Nodes)
	wrong(c.Timeout < 0, "Timeout %v: must not be negative", c.Timeout)
	wrong(c.MaxInFlight < 0, "MaxInFlight %d: must not be negative", c.MaxInFlight)
	wrong(c.MaxKeys < 0 || c.MaxKeys > mostKeys, "MaxKeys %d: must be between 0 and %d", c.MaxKeys, mostKeys)
	wrong(c.MaxDeny < 0, "MaxDeny %v: must not be negative", c.MaxDeny)
	wrong(c.LeaseTTL != 0 && c.LeaseTTL < leastLeaseTTL || c.LeaseTTL > compiled.MaxTTL,
		"LeaseTTL %v: must be between %v and %v", c.LeaseTTL, leastLeaseTTL, compiled.MaxTTL)
	wrong(c.FlushEvery < 0, "FlushEvery %v: must not be negative", c.FlushEvery)
	wrong(c.MaxUnsynced < 0, "MaxUnsynced %d: must not be negative", c.MaxUnsynced)
	return errors.Join(problems...)
}

// withDefaults replaces zero values of a valid Config by their defaults, except those of
// Nodes and MaxUnsynced, which are computed when they are used.
func (c Config) withDefaults() Config {
	c.OnError = cmp.Or(c.OnError, weir.FailLocal)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, DefaultMaxInFlight)
	c.MaxKeys = cmp.Or(c.MaxKeys, DefaultMaxKeys)
	c.MaxDeny = cmp.Or(c.MaxDeny, DefaultMaxDeny)
	c.LeaseTTL = cmp.Or(c.LeaseTTL, DefaultLeaseTTL)
	c.FlushEvery = cmp.Or(c.FlushEvery, DefaultFlushEvery)
	if c.Now == nil {
		c.Now = weir.Now
	}
	if c.Random == nil {
		c.Random = rand.Float64
	}
	return c
}
