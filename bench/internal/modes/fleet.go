package modes

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/socket"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/store/redisstore"
	"github.com/weirlimit/weir/tiered"
	"github.com/weirlimit/weir/tiered/redistier"
)

// All are the modes, in the order of the tables.
var All = []tiered.Mode{tiered.Exact, tiered.Leased, tiered.Async}

// patience is how long Redis may take. Callers who never stop leave the goroutines that
// talk to Redis waiting for a processor for longer than the default of 10 ms, after which
// a node answers without Redis. Copies last as long, and τ, so in Async mode it is the
// nodes' view that gets worse, and the bound does not.
const patience = 3 * time.Second

// key is the one that all callers use.
const key = "user-000000000000001"

// fewKeys is more than there are.
const fewKeys = 1024

// A fleet is some nodes with the same limit.
type fleet struct {
	mode   tiered.Mode
	policy *weir.Policy
	nodes  []*node
}

type node struct {
	limiter *tiered.Limiter
	store   *redisstore.Store
	bus     *redistier.Bus
}

// openFleet connects n nodes. Fleets with different prefixes know nothing of each other.
func openFleet(addr, prefix string, mode tiered.Mode, n int, l weir.Limit) (*fleet, error) {
	policy, err := weir.NewPolicy("bench", l)
	if err != nil {
		return nil, err
	}
	f := &fleet{mode: mode, policy: policy}
	for range n {
		x, err := openNode(addr, prefix, mode, n)
		if err != nil {
			f.close()
			return nil, err
		}
		f.nodes = append(f.nodes, x)
	}
	return f, nil
}

func openNode(addr, prefix string, mode tiered.Mode, nodes int) (_ *node, err error) {
	x := new(node)
	defer func() {
		if err != nil {
			x.close()
		}
	}()
	ctx := context.Background()
	server := redisstore.Server{Addrs: []string{addr}, Dial: socket.Dial} // as the daemon connects
	if x.store, err = redisstore.New(ctx, redisstore.Config{
		Redis: server, Prefix: prefix, Timeout: patience,
	}); err != nil {
		return nil, err
	}
	if x.bus, err = redistier.New(ctx, redistier.Config{
		Redis: server, Prefix: prefix,
	}); err != nil {
		return nil, err
	}
	local, err := memstore.New(memstore.Config{MaxKeys: fewKeys})
	if err != nil {
		return nil, err
	}
	x.limiter, err = tiered.New(tiered.Config{
		Store: x.store, Local: local, Bus: x.bus, Mode: mode, Timeout: patience, MaxKeys: fewKeys,
		Nodes: nodes, // the bus would know within a second
	})
	return x, err
}

func (x *node) close() {
	if x.limiter != nil {
		x.limiter.Close()
	}
	if x.bus != nil {
		x.bus.Close()
	}
	if x.store != nil {
		x.store.Close()
	}
}

func (f *fleet) close() {
	for _, x := range f.nodes {
		x.close()
	}
}

// name is for example "leased, 3 nodes".
func (f *fleet) name() string {
	if len(f.nodes) == 1 {
		return fmt.Sprintf("%v, 1 node", f.mode)
	}
	return fmt.Sprintf("%v, %d nodes", f.mode, len(f.nodes))
}

// A tally is what all nodes have done so far.
type tally struct {
	calls, commands, alone int64
}

// tally adds up what the nodes have done.
func (f *fleet) tally() (sum tally) {
	for _, x := range f.nodes {
		s := x.limiter.Stats()
		sum.calls += s.StoreCalls
		sum.alone += s.Fallback
		sum.commands += x.store.Stats().Commands
	}
	return sum
}

// answered returns an error if a node has decided without Redis, which is no answer here.
func (f *fleet) answered() error {
	if n := f.tally().alone; n > 0 {
		return fmt.Errorf("%s: %d calls were decided without Redis, which took longer than %v", f.name(), n, patience)
	}
	return nil
}
