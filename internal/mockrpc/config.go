package mockrpc

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/internal/jsonrpc"
)

// The presets.
const (
	Alchemy = "alchemy" // throughput units per second, over ten seconds
	Generic = "generic" // calls per second and per minute
)

// Presets returns the names of the presets.
func Presets() []string { return []string{Alchemy, Generic} }

// The bounds of a configuration. They keep the logs of the limits small.
const (
	MaxRate      = 100_000   // units per second
	MaxPerMinute = 1_000_000 // calls per minute
	maxKeys      = 1000
)

// The defaults of a configuration.
const (
	DefaultKey       = "demo"
	DefaultRate      = 500 // of Alchemy's free plan
	DefaultChainID   = 1
	DefaultBlockTime = 12 * time.Second
)

// Config is what a provider is like.
type Config struct {
	// Preset is whose limits and refusals the provider has. The default is Alchemy.
	Preset string

	// Accounts are those of the provider's customers. The default is one, called "default", with the key
	// "demo"; of the preset Generic it needs no key.
	Accounts []Account

	// Rate is how many units, or calls with the preset Generic, each account has per second. The default is
	// 500 units; Generic has no limit by default.
	Rate int64

	// PerMinute is how many calls each account has per minute. The default is no limit. It is for the preset
	// Generic only.
	PerMinute int64

	// RetryAfter means that refusals say when to come back.
	RetryAfter bool

	// PartialBatches means that a batch is not refused as a whole: its calls are charged one by one, in their
	// order, and the status is 200 even if some, or all, are refused.
	PartialBatches bool

	// MaxBatch is how many calls a batch may have, at most 100. The default is 100.
	MaxBatch int

	// ChainID is what eth_chainId returns. The default is 1.
	ChainID uint64

	// FirstBlock is the newest block when the provider starts. The default is the number of block times since
	// 1970, so that providers agree about the newest block whenever they have started.
	FirstBlock uint64

	// BlockTime is the time between two blocks. The default is 12 s.
	BlockTime time.Duration

	// Latency is how long each response takes. The limits count a request when it comes.
	Latency time.Duration

	// Now is the clock of limits and blocks. The default is time.Now. Latency and delays are always those of
	// package time.
	Now func() time.Time
}

// Account is a customer of the provider.
type Account struct {
	// Name is the account's name in Stats. It is required.
	Name string

	// Keys are the keys of the account's applications: a call has one in its path, /v2/KEY, or in a header,
	// "Authorization: Bearer KEY" or "X-Api-Key: KEY". The key "" is that of calls to / without a header.
	Keys []string

	// Rate and PerMinute are the account's own. The default is what Config says.
	Rate, PerMinute int64
}

// withDefaults returns the configuration with what it leaves out.
func (c Config) withDefaults() Config {
	c.Preset = cmp.Or(c.Preset, Alchemy)
	key := ""
	if c.Preset == Alchemy {
		c.Rate, key = cmp.Or(c.Rate, DefaultRate), DefaultKey
	}
	if len(c.Accounts) == 0 {
		c.Accounts = []Account{{Name: "default", Keys: []string{key}}}
	}
	c.MaxBatch = cmp.Or(c.MaxBatch, jsonrpc.MaxBatch)
	c.ChainID = cmp.Or(c.ChainID, DefaultChainID)
	c.BlockTime = cmp.Or(c.BlockTime, DefaultBlockTime)
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Accounts = slices.Clone(c.Accounts)
	for i := range c.Accounts {
		a := &c.Accounts[i]
		a.Rate, a.PerMinute = cmp.Or(a.Rate, c.Rate), cmp.Or(a.PerMinute, c.PerMinute)
	}
	return c
}

// Validate returns an error for each field that is wrong.
func (c Config) Validate() error {
	var problems problems
	c = c.withDefaults()
	if !slices.Contains(Presets(), c.Preset) {
		problems.add(c.Preset, "there are "+strings.Join(Presets(), " and "), "Preset")
	}
	problems.checkRange(c.Rate, MaxRate, "Rate")
	problems.checkRange(c.PerMinute, MaxPerMinute, "PerMinute")
	problems.checkRange(int64(c.MaxBatch), jsonrpc.MaxBatch, "MaxBatch")
	if c.FirstBlock > maxBlock {
		problems.add(c.FirstBlock, fmt.Sprintf("must be at most %d", uint64(maxBlock)), "FirstBlock")
	}
	if c.BlockTime < time.Millisecond {
		problems.add(c.BlockTime, "must be at least 1ms", "BlockTime")
	}
	if c.Latency < 0 || c.Latency > maxDelay {
		problems.add(c.Latency, fmt.Sprintf("must be between 0 and %v", maxDelay), "Latency")
	}
	c.checkAccounts(&problems)
	return errors.Join(problems...)
}

// keyText is how a key is written, so that it can be part of a path and of a header.
var keyText = regexp.MustCompile(`^[A-Za-z0-9_.-]{0,64}$`)

func (c Config) checkAccounts(problems *problems) {
	owners := make(map[string]string) // of keys
	names := make(map[string]bool)
	for i, a := range c.Accounts {
		if a.Name == "" || names[a.Name] {
			problems.add(a.Name, "must be a name that no other account has", "Accounts", i, "Name")
		}
		names[a.Name] = true
		if len(a.Keys) == 0 {
			problems.add(nil, "an account needs a key", "Accounts", i, "Keys")
		}
		for j, key := range a.Keys {
			if owner, taken := owners[key]; taken {
				problems.add(key, fmt.Sprintf("is a key of account %q already", owner), "Accounts", i, "Keys", j)
			}
			if !keyText.MatchString(key) || key == "." || key == ".." { // these would be removed from a path
				problems.add(key, "a key has up to 64 of a-z A-Z 0-9 _ . -", "Accounts", i, "Keys", j)
			}
			owners[key] = a.Name
		}
		problems.checkRange(a.Rate, MaxRate, "Accounts", i, "Rate")
		problems.checkRange(a.PerMinute, MaxPerMinute, "Accounts", i, "PerMinute")
		if c.Preset != Generic && a.PerMinute != 0 {
			problems.add(a.PerMinute, "is for the preset generic: leave it out", "Accounts", i, "PerMinute")
		}
	}
	if len(owners) > maxKeys {
		problems.add(len(owners), fmt.Sprintf("must be at most %d keys", maxKeys), "Accounts")
	}
}

// problems collects what is wrong with a configuration.
type problems []error

func (p *problems) add(value any, problem string, path ...any) {
	*p = append(*p, &fielderr.Error{Package: "mockrpc", Path: path, Value: value, Problem: problem})
}

func (p *problems) checkRange(n, most int64, path ...any) {
	if n < 0 || n > most {
		p.add(n, fmt.Sprintf("must be between 0 and %d", most), path...)
	}
}

// unit is the unit of a vendor's table that the limits of a preset count.
func (c Config) unit() string {
	if c.Preset == Alchemy {
		return "throughput"
	}
	return "requests"
}

func (c Config) table() (*budget.Table, error) { return budget.BuiltinTable(c.Preset) }

// keyOf returns the key of a request, "" if there is none.
func keyOf(r *http.Request) string {
	bearer, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !found {
		bearer = ""
	}
	return cmp.Or(r.PathValue("key"), bearer, r.Header.Get("X-Api-Key"))
}
