package rig

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/faults/internal/history"
)

// Slow is clients that keep connections and do not get on: a third sends nothing, a third
// a byte each second, and a third half a body.
type Slow struct {
	t     testing.TB
	addr  string
	stop  context.CancelFunc
	wg    sync.WaitGroup
	mu    sync.Mutex // guards the fields below
	ended []time.Duration
	kept  int // those that were still open at the end
	lost  int // those that could not connect
}

// slowRequest is what they would send.
const slowRequest = "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 35\r\n\r\n" +
	`{"policy":"default","key":"slowly"}`

// StartSlow connects n of them, so many each second. They stay until the daemon closes,
// or Stop.
func (d *Daemon) StartSlow(n, perSecond int) *Slow {
	ctx, stop := context.WithCancel(context.Background())
	s := &Slow{t: d.t, addr: d.Addr(), stop: stop}
	s.wg.Go(func() { s.connect(ctx, n, perSecond) })
	d.t.Cleanup(func() { s.Stop() })
	return s
}

func (s *Slow) connect(ctx context.Context, n, perSecond int) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for i := 0; i < n && ctx.Err() == nil; <-tick.C {
		for due := int(time.Since(began).Seconds() * float64(perSecond)); i < min(n, due); i++ {
			kind := i % 3
			s.wg.Go(func() { s.run(ctx, kind) })
		}
	}
}

func (s *Slow) run(ctx context.Context, kind int) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", s.addr)
	if err != nil {
		s.note(func() { s.lost++ })
		return
	}
	defer conn.Close()
	began := time.Now()
	closed := make(chan struct{})
	go func() { // until the daemon closes, or the end
		defer close(closed)
		_, _ = io.Copy(io.Discard, conn)
	}()
	defer func() { conn.Close(); <-closed }()
	switch kind {
	case 1:
		s.drip(ctx, conn, closed)
	case 2:
		_, _ = io.WriteString(conn, slowRequest[:len(slowRequest)-15]) // if it is closed already, that is seen next
	}
	select {
	case <-closed:
		s.note(func() { s.ended = append(s.ended, time.Since(began)) })
	case <-ctx.Done():
		s.note(func() { s.kept++ })
	}
}

// drip sends a byte each second.
func (s *Slow) drip(ctx context.Context, conn net.Conn, closed <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for i := range len(slowRequest) {
		if _, err := io.WriteString(conn, slowRequest[i:i+1]); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-closed:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (s *Slow) note(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Ended returns how long those stayed who were sent away.
func (s *Slow) Ended() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// Stop ends those that are left, and returns how many were, and how many never connected.
func (s *Slow) Stop() (kept, lost int) {
	s.stop()
	s.wg.Wait()
	return s.kept, s.lost
}

// Newcomers are callers with a new connection each. What they got is part of the load's
// history; their keys begin with "new".
type Newcomers struct {
	load  *Load  // set by StartNewcomers, like all of it
	fleet *Fleet // whose client has no connections to use again
	stop  chan struct{}
	done  chan struct{} // closed when the last answer is there
}

// StartNewcomers has some call each second, whether answers come or not. Stop them before
// the load.
func (l *Load) StartNewcomers(perSecond int) *Newcomers {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * requestLimit}
	n := &Newcomers{
		load: l, fleet: &Fleet{Daemons: l.fleet.Daemons, t: l.fleet.t, client: client},
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	go n.run(time.Second / time.Duration(perSecond))
	l.fleet.t.Cleanup(n.Stop)
	return n
}

func (n *Newcomers) run(every time.Duration) {
	defer close(n.done)
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-n.stop:
			return
		case <-tick.C:
			wg.Go(func() { n.ask(fmt.Sprintf("new%d", i%10)) })
		}
	}
}

func (n *Newcomers) ask(key string) {
	d := history.Decision{Key: key, Sent: n.load.Now()}
	answer, err := n.fleet.Ask(0, key, 1)
	d.Received, d.Status, d.Allowed, d.Reason = n.load.Now(), answer.Status, answer.Allowed, answer.Reason
	if err != nil {
		d.Err = err.Error()
	}
	n.load.mu.Lock()
	defer n.load.mu.Unlock()
	n.load.list = append(n.load.list, d)
}

// Stop waits for the last answers.
func (n *Newcomers) Stop() {
	select {
	case <-n.stop:
	default:
		close(n.stop)
	}
	<-n.done
}
