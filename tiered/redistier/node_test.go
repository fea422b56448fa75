package redistier

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/store/redisstore"
	"github.com/weirlimit/weir/tiered"
)

// nodeVariable in the environment makes this test program a node of a fleet. It has the
// node's orders, in JSON.
const nodeVariable = "WEIR_TEST_TIER_NODE"

// nodeOrders is what a node is: a tiered.Limiter over a redisstore.Store and a Bus, and
// one policy. It says that it is ready, and then answers one line of requests after the
// other until its standard input ends.
type nodeOrders struct {
	Addr     string
	Log      string // where its grants go
	Limit    nodeLimit
	Mode     tiered.Mode
	OnError  weir.OnError
	Timeout  time.Duration
	Every    time.Duration // between heartbeats
	MaxDeny  time.Duration
	LeaseTTL time.Duration

	FlushEvery  time.Duration
	MaxUnsynced int64
}

// nodeLimit is a GCRA limit.
type nodeLimit struct {
	Rate, Burst int64
	Per         time.Duration
}

func (l nodeLimit) policy() (*weir.Policy, error) {
	return weir.NewPolicy("p", weir.Limit{Rate: l.Rate, Burst: l.Burst, Per: weir.Every(l.Per)})
}

// perNano is the rate in units per nanosecond.
func (l nodeLimit) perNano() float64 { return float64(l.Rate) / float64(l.Per) }

// A request is one thing that a node does.
type request struct {
	Do     string // see node.answer
	Key    string
	Cost   int64
	Limit  nodeLimit // for set
	Phases []phase   // for load
}

// A phase of a load: so many goroutines ask for Key between two instants of the wall
// clock, as fast as they can or every so often. Who is denied asks again after a
// millisecond: denials are answered within a microsecond, and four nodes that do nothing
// else leave no processor for the server.
type phase struct {
	From, To   int64 // Unix ns
	Key        string
	Goroutines int
	Every      time.Duration
	MaxCost    int64 // costs are 1 to that, by turns; 0 is 1
}

// A reply answers a request.
type reply struct {
	Error   string
	Allowed bool
	Took    time.Duration

	At         int64 // when a watcher was first admitted, Unix ns
	Stats      tiered.Stats
	Goroutines int
	Peak       int // the most goroutines

	Calls, Granted int64 // of all loads
	Slowest        time.Duration
	Lag            time.Duration // the most by which a sleep was too long
	Failed         string        // the last error that a call returned
}

// A node is what the program does.
type node struct {
	orders  nodeOrders
	policy  *weir.Policy
	limiter *tiered.Limiter
	log     *grantLog
	peak    atomic.Int64
	lag     atomic.Int64

	busy     sync.WaitGroup // a load or a watcher
	stopped  atomic.Bool
	calls    atomic.Int64
	granted  atomic.Int64
	slowest  atomic.Int64
	failed   atomic.Pointer[string]
	admitted atomic.Int64 // see reply.At
}

// runNode is the program. Its result is its exit code.
func runNode() int {
	n := &node{}
	err := json.Unmarshal([]byte(os.Getenv(nodeVariable)), &n.orders)
	if err == nil {
		err = n.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (n *node) run() (err error) {
	o := n.orders
	if n.policy, err = o.Limit.policy(); err != nil {
		return err
	}
	if n.log, err = openGrantLog(o.Log); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	store, err := persist(ctx, func() (*redisstore.Store, error) {
		return redisstore.New(ctx, redisstore.Config{Redis: server(o.Addr), Timeout: o.Timeout})
	})
	if err != nil {
		return err
	}
	defer store.Close()
	bus, err := persist(ctx, func() (*Bus, error) { return New(ctx, Config{Redis: server(o.Addr), Every: o.Every}) })
	if err != nil {
		return err
	}
	defer bus.Close()
	local, err := memstore.New(memstore.Config{})
	if err != nil {
		return err
	}
	n.limiter, err = tiered.New(tiered.Config{
		Store: store, Local: local, Bus: bus, Mode: o.Mode, OnError: o.OnError, Timeout: o.Timeout,
		MaxDeny: o.MaxDeny, LeaseTTL: o.LeaseTTL, FlushEvery: o.FlushEvery, MaxUnsynced: o.MaxUnsynced,
	})
	if err != nil {
		return err
	}
	defer n.limiter.Close()
	for { // until it is connected, and has all scripts
		if _, err := weir.Peek(ctx, store, n.policy, "warm", 1); err == nil {
			break
		} else if ctx.Err() != nil {
			return err
		}
	}
	go n.watchSelf()
	return n.serve(os.Stdin, json.NewEncoder(os.Stdout))
}

// persist opens something again and again until it works or ctx ends: where four nodes start at
// once on a busy machine, an answer may take longer than the second that Redis has.
func persist[T any](ctx context.Context, open func() (T, error)) (it T, err error) {
	for {
		if it, err = open(); err == nil || ctx.Err() != nil {
			return it, err
		}
	}
}

// watchSelf counts goroutines, and notes for how long a process of a busy machine got
// nowhere.
func (n *node) watchSelf() {
	const every = 2 * time.Millisecond
	for last := time.Now(); ; last = time.Now() {
		time.Sleep(every)
		n.lag.Store(max(n.lag.Load(), int64(time.Since(last)-every)))
		n.peak.Store(max(n.peak.Load(), int64(runtime.NumGoroutine())))
	}
}

func (n *node) serve(in io.Reader, out *json.Encoder) error {
	if err := out.Encode(reply{}); err != nil { // it is ready
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var q request
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return err
		}
		r, err := n.answer(q)
		if err != nil {
			r.Error = err.Error()
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) answer(q request) (r reply, err error) {
	ctx, began := context.Background(), time.Now()
	switch q.Do {
	case "take":
		d, err := n.limiter.Take(ctx, n.policy, q.Key, q.Cost)
		if d.Allowed {
			n.log.add(q.Key, began, time.Now(), q.Cost)
		}
		return reply{Allowed: d.Allowed}, err
	case "set":
		next, err := q.Limit.policy()
		if err != nil {
			return r, err
		}
		err = n.limiter.Set(ctx, n.policy, next)
		return reply{Took: time.Since(began)}, err
	case "reset":
		err := weir.Reset(ctx, n.limiter, n.policy, q.Key)
		return reply{Took: time.Since(began)}, err
	case "stats":
		return reply{Stats: n.limiter.Stats(), Goroutines: runtime.NumGoroutine()}, nil
	case "peak": // since it was last asked for
		return reply{Stats: n.limiter.Stats(), Goroutines: runtime.NumGoroutine(), Peak: int(n.peak.Swap(0))}, nil
	case "watch": // until Key is admitted
		n.admitted.Store(0)
		n.busy.Go(func() { n.watch(q.Key) })
	case "load":
		n.stopped.Store(false)
		for _, p := range q.Phases {
			for i := range p.Goroutines {
				n.busy.Go(func() { n.load(p, int64(i)) })
			}
		}
	case "stop": // a load before its time
		n.stopped.Store(true)
	case "wait": // for the end of loads and watchers
		n.busy.Wait()
		r = reply{At: n.admitted.Load(), Calls: n.calls.Load(), Granted: n.granted.Load(), Slowest: time.Duration(n.slowest.Load()), Lag: time.Duration(n.lag.Load())}
		if f := n.failed.Load(); f != nil {
			r.Failed = *f
		}
	case "close":
		n.limiter.Close()
		return reply{Took: time.Since(began)}, nil
	default:
		return r, errors.New("what?")
	}
	return r, nil
}

func (n *node) watch(key string) {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Microsecond) {
		d, err := n.limiter.Take(context.Background(), n.policy, key, 1)
		if err != nil {
			n.fail(err)
			return
		}
		if d.Allowed {
			n.admitted.Store(time.Now().UnixNano())
			return
		}
	}
}

func (n *node) fail(err error) {
	text := err.Error()
	n.failed.Store(&text)
}

// load is one goroutine of a phase.
func (n *node) load(p phase, turn int64) {
	time.Sleep(time.Until(time.Unix(0, p.From)))
	for cost := turn; ; cost++ {
		c := 1 + cost%max(1, p.MaxCost)
		before := time.Now()
		if before.UnixNano() >= p.To || n.stopped.Load() {
			return
		}
		d, err := n.limiter.Take(context.Background(), n.policy, p.Key, c)
		after := time.Now()
		n.calls.Add(1)
		if err != nil {
			n.fail(err)
			return
		}
		for took := int64(after.Sub(before)); ; {
			if old := n.slowest.Load(); took <= old || n.slowest.CompareAndSwap(old, took) {
				break
			}
		}
		pause := p.Every
		if d.Allowed {
			n.granted.Add(c)
			n.log.add(p.Key, before, after, c)
		} else {
			pause = max(pause, time.Millisecond)
		}
		if pause > 0 {
			time.Sleep(pause)
		}
	}
}

// A grant is that cost units were granted at some instant between two readings of the
// wall clock. All nodes and the server are on one machine, so it is everybody's clock,
// and the one by which the server decides.
type grant struct {
	before, after int64 // Unix ns
	key           uint64
	cost          int64
}

// keyOf is a key in a log.
func keyOf(key string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, key)
	return h.Sum64()
}

// A grantLog keeps grants in a file that is shared memory: what was granted before a
// process is killed is there afterwards.
type grantLog struct {
	file []grant
	next atomic.Int64
}

const (
	mostGrants = 1 << 16
	grantBytes = int(unsafe.Sizeof(grant{}))
)

// openGrantLog opens a log, or makes an empty one.
func openGrantLog(path string) (*grantLog, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(int64(mostGrants * grantBytes)); err != nil {
		return nil, err
	}
	bytes, err := syscall.Mmap(int(f.Fd()), 0, mostGrants*grantBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &grantLog{file: unsafe.Slice((*grant)(unsafe.Pointer(&bytes[0])), mostGrants)}, nil
}

// add writes the cost last: a grant without one was not finished.
func (l *grantLog) add(key string, before, after time.Time, cost int64) {
	g := &l.file[l.next.Add(1)-1]
	g.before, g.after, g.key = before.UnixNano(), after.UnixNano(), keyOf(key)
	atomic.StoreInt64(&g.cost, cost)
}

// all returns the grants so far.
func (l *grantLog) all() (list []grant) {
	for i := range l.file {
		if cost := atomic.LoadInt64(&l.file[i].cost); cost > 0 {
			list = append(list, l.file[i])
		}
	}
	return list
}
