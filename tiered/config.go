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

// Mode is how often the store is asked.
type Mode uint8

// The modes. The package comment tells when to use which, and their bounds.
const (
	Exact  Mode = iota // for every charge that the deny cache does not answer
	Leased             // for blocks of units, which are then spent here
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
	return 0, fmt.Errorf("tiered: no mode is called %q; there are %q", name, modeNames[:])
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
	// Partitioned, Timed, Patient and PolicyTracker are what a store may be able to do
	// besides deciding.
	Store weir.Limiter

	// Local keeps this node's shares while the store is unavailable. It must be set
	// and used by nothing else; package memstore has one. How many keys it tells apart should be about MaxKeys.
	Local weir.Limiter

	// Bus connects this node to the others. The default is none: then denials,
	// resets and changed limits are felt here only when MaxDeny is over, and
	// Nodes must be told.
	Bus Bus

	// Mode is how often the store is asked. The default is Exact.
	Mode Mode

	// OnError is what limits do that do not say it themselves while the store
	// cannot be asked. The default is weir.FailLocal.
	OnError weir.OnError

	// Nodes is how many nodes share the store, for their shares while it is away
	// and for the size of leases. The default, 0, is what Bus counts, or 1.
	Nodes int

	// Timeout is how long a decision of the store may take. A batch that the store
	// needs several rounds for, one after the other, has that much for each, at most
	// four times. A caller whose own
	// deadline is less than 5 ms after that has it end 5 ms before the deadline.
	// The default is 10 ms.
	Timeout time.Duration

	// MaxInFlight bounds the calls to the store that may be under way at once.
	// Beyond it, charges are decided as OnError says. The default is 10,000.
	MaxInFlight int

	// MaxKeys bounds the keys of which something is known here: denials, leases,
	// allowances and unsynced usage. Others are asked for one by one. The default is 131,072,
	// which take about 40 MB if all are in use.
	MaxKeys int

	// MaxDeny is how long a denial is believed at most, because refunds on other
	// nodes are not told. The default is 1 s.
	MaxDeny time.Duration

	// LeaseTTL is how long a lease lasts. A node that crashes strands its leases
	// that long. The default is 5 s, the least 100 ms.
	LeaseTTL time.Duration

	// FlushEvery is how often Async flushes unsynced usage. The default is 50 ms.
	FlushEvery time.Duration

	// MaxUnsynced bounds the units of a key that Async grants without the store's
	// knowledge, those of a flush under way included. The default is a tenth of what the policy admits at
	// once, divided by the number of nodes, and at least 1.
	MaxUnsynced int64

	// OnUnreadable, unless it is nil, is called when the store cannot read what is stored
	// of a key (weir.ErrState), once for each key: the key is named by a hash. Such a key
	// is decided as OnError says, and the store goes on serving others. It must be quick.
	OnUnreadable func(policy, keyHash string, err error)

	// OnBreaker, unless it is nil, is called when a part of the store is given
	// up, and when it is back. It must be quick.
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

// Validate returns everything that is wrong with the configuration.
func (c Config) Validate() error {
	var problems []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf("tiered: "+format, args...))
		}
	}
	wrong(c.Store == nil, "Store: must be set")
	wrong(c.Local == nil, "Local: must be set")
	wrong(c.Mode > Async, "Mode %d: is not one of %q", uint8(c.Mode), modeNames[:])
	wrong(c.OnError > weir.FailClosed, "OnError %d: is not one that weir knows", uint8(c.OnError))
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

// withDefaults returns a valid Config without zero values that have a meaning,
// except Nodes and MaxUnsynced.
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
