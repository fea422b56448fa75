package traffic

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Place is where a daemon listens, as host:port.
type Place struct{ HTTP, GRPC, RESP string }

// callLimit is how long a caller waits for an answer: longer than a daemon lets any call
// take, so that one that is forgotten is seen as such.
const callLimit = 20 * time.Second

// Traffic is callers that call until Stop.
type Traffic struct {
	t     testing.TB
	place atomic.Pointer[Place] // for connections that are made from now on
	stop  chan struct{}
	wg    sync.WaitGroup

	mu      sync.Mutex // guards the field below
	tallies []*Tally
}

// Start returns traffic without callers. It ends with the test.
func Start(t testing.TB, at Place) *Traffic {
	f := &Traffic{t: t, stop: make(chan struct{})}
	f.Goto(at)
	t.Cleanup(func() { f.Stop() })
	return f
}

// Goto has new connections made elsewhere. Those that are open stay.
func (f *Traffic) Goto(at Place) { f.place.Store(&at) }

// A Pause is how long a caller waits between an answer and its next call.
type Pause func() time.Duration

// UpTo is a pause of any length up to most.
func UpTo(most time.Duration) Pause { return Between(0, most) }

// Between is a pause of any length between two.
func Between(least, most time.Duration) Pause {
	return func() time.Duration { return least + rand.N(most-least) }
}

// A caller makes calls. Only one goroutine uses it.
type caller interface {
	// call makes a call, or some together, and notes what became of them.
	call(n *Tally)

	// close ends its connection, if it has one.
	close()
}

// A Kind makes callers.
type Kind func(f *Traffic) caller

// Once is callers that make each call on a new connection.
func Once(kind Kind) Kind {
	return func(f *Traffic) caller { return &once{f, kind} }
}

type once struct {
	traffic *Traffic
	kind    Kind
}

func (o *once) call(n *Tally) {
	c := o.kind(o.traffic)
	defer c.close()
	c.call(n)
}

func (o *once) close() {}

// Late is callers that make each call on a new connection, and only a pause after they have
// connected. It is for kinds that are spoken by hand.
func Late(pause Pause, kind Kind) Kind {
	return Once(func(f *Traffic) caller { return &late{kind(f), pause} })
}

type late struct {
	caller
	pause Pause
}

func (l *late) call(n *Tally) {
	if l.caller.(interface{ ready(*Tally) bool }).ready(n) {
		time.Sleep(l.pause())
		l.caller.call(n)
	}
}

// Add starts callers. The tally of all of them has the name.
func (f *Traffic) Add(name string, callers int, pause Pause, kind Kind) {
	n := &Tally{Name: name}
	f.mu.Lock()
	f.tallies = append(f.tallies, n)
	f.mu.Unlock()
	for range callers {
		f.wg.Go(func() { f.run(kind(f), n, pause) })
	}
}

func (f *Traffic) run(c caller, n *Tally, pause Pause) {
	defer c.close()
	timer := time.NewTimer(pause())
	defer timer.Stop()
	for {
		select {
		case <-f.stop:
			return
		case <-timer.C:
		}
		n.InFlight.Add(1)
		c.call(n)
		n.InFlight.Add(-1)
		timer.Reset(pause())
	}
}

// Stop lets all callers have the answers to their last calls, and returns what became of
// all calls.
func (f *Traffic) Stop() []*Tally {
	f.mu.Lock()
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
	f.mu.Unlock()
	f.wg.Wait()
	return f.tallies
}

// Tallies returns what became of all calls so far.
func (f *Traffic) Tallies() []*Tally {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*Tally(nil), f.tallies...)
}

// InFlight returns how many calls with a name have no answer yet.
func (f *Traffic) InFlight(name string) int64 {
	for _, n := range f.Tallies() {
		if n.Name == name {
			return n.InFlight.Load()
		}
	}
	return 0
}

// dial connects to a listener of the daemon that is to be called now.
func (f *Traffic) dial(ctx context.Context, listener func(*Place) string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", listener(f.place.Load()))
}

func onHTTP(p *Place) string { return p.HTTP }
func onGRPC(p *Place) string { return p.GRPC }
func onRESP(p *Place) string { return p.RESP }

// Tally is what became of calls. Each call is counted once it is over, as one of Admitted,
// Denied, Done, Told and Dropped. All may be read at any time.
type Tally struct {
	Name     string
	InFlight atomic.Int64

	Admitted atomic.Int64
	Denied   atomic.Int64
	Done     atomic.Int64 // answered, but no decision
	Told     atomic.Int64 // not carried out, and the daemon said so
	Dropped  atomic.Int64 // sent at least in part, and without a complete answer
	Failed   atomic.Int64 // answered by an error that says something else
	Refused  atomic.Int64 // connections that could not be made
	Closed   atomic.Int64 // connections that the daemon closed between calls, or asked to

	mu    sync.Mutex // guards the field below
	notes []string
}

// Calls returns how many calls are over.
func (n *Tally) Calls() int64 {
	return n.Admitted.Load() + n.Denied.Load() + n.Done.Load() + n.Told.Load() + n.Dropped.Load() + n.Failed.Load()
}

// Notes returns what went wrong, the first few times.
func (n *Tally) Notes() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.notes
}

func (n *Tally) decided(admitted bool) {
	if admitted {
		n.Admitted.Add(1)
		return
	}
	n.Denied.Add(1)
}

func (n *Tally) note(format string, args ...any) {
	const most = 5
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.notes) < most {
		n.notes = append(n.notes, fmt.Sprintf(format, args...))
	}
}

func (n *Tally) drop(calls int, err error) {
	n.Dropped.Add(int64(calls))
	n.note("%d dropped: %v", calls, err)
}

func (n *Tally) refuse(err error) {
	n.Refused.Add(1)
	n.note("no connection: %v", err)
}

func (n *Tally) fail(format string, args ...any) {
	n.Failed.Add(1)
	n.note(format, args...)
}
