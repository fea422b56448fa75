package rig

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Slow is clients that keep connections and do not get on: a third sends nothing, a third
// a byte each second, and a third half a body.
//
// All of them are one goroutine, which asks the kernel what happened to its sockets. Two
// goroutines for each would make this process, whose load is being timed, slow itself.
type Slow struct {
	t    testing.TB
	addr syscall.SockaddrInet4
	stop context.CancelFunc
	done chan struct{} // closed when all is over
	poll int           // the descriptor of epoll; run's, like the next two
	open map[int32]*slowClient
	drip []*slowClient // in the order in which their next byte is due

	mu    sync.Mutex // guards the fields below
	ended []time.Duration
	kept  int // those that were still open at the end
	lost  int // those that could not connect
}

type slowClient struct {
	fd        int32
	kind      int
	began     time.Time // when it was connected; zero before
	sent      int
	due       time.Time // its next byte
	gone      bool
	connected bool
}

// slowRequest is what they would send.
const slowRequest = "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 35\r\n\r\n" +
	`{"policy":"default","key":"slowly"}`

// The kinds.
const (
	silent = iota
	dripping
	halfway
	kinds
)

// StartSlow connects n of them, so many each second. They stay until the daemon closes,
// or Stop.
func (d *Daemon) StartSlow(n, perSecond int) *Slow {
	d.t.Helper()
	to, err := netip.ParseAddrPort(d.Addr())
	if err != nil {
		d.t.Fatal(err)
	}
	poll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Slow{
		t: d.t, addr: syscall.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())},
		stop: stop, done: make(chan struct{}), poll: poll, open: map[int32]*slowClient{},
	}
	go s.run(ctx, n, perSecond)
	d.t.Cleanup(func() { s.Stop() })
	return s
}

// turn is how often new ones connect, in milliseconds.
const turn = 5

func (s *Slow) run(ctx context.Context, n, perSecond int) {
	defer close(s.done)
	defer syscall.Close(s.poll)
	events := make([]syscall.EpollEvent, 256)
	began := time.Now()
	for made := 0; ctx.Err() == nil; {
		for due := int(time.Since(began).Seconds() * float64(perSecond)); made < min(n, due); made++ {
			s.connect(made % kinds)
		}
		s.dripAll(time.Now())
		k, err := syscall.EpollWait(s.poll, events, turn)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			s.t.Errorf("epoll: %v", err)
			return
		}
		for _, e := range events[:max(k, 0)] {
			s.happened(s.open[e.Fd], e.Events)
		}
	}
	for fd := range s.open {
		s.note(func() { s.kept++ })
		_ = syscall.Close(int(fd))
	}
}

// connect begins to connect one. The kernel reports whether that succeeds.
func (s *Slow) connect(kind int) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		s.note(func() { s.lost++ })
		return
	}
	c := &slowClient{fd: int32(fd), kind: kind}
	s.open[c.fd] = c
	if err := syscall.Connect(fd, &s.addr); err != nil && !errors.Is(err, syscall.EINPROGRESS) {
		s.lose(c)
		return
	}
	s.watch(syscall.EPOLL_CTL_ADD, c, syscall.EPOLLOUT)
}

func (s *Slow) watch(op int, c *slowClient, events uint32) {
	if err := syscall.EpollCtl(s.poll, op, int(c.fd), &syscall.EpollEvent{Events: events, Fd: c.fd}); err != nil {
		s.t.Errorf("epoll: %v", err)
	}
}

// happened is what the kernel has to say about one.
func (s *Slow) happened(c *slowClient, events uint32) {
	if !c.connected {
		if code, err := syscall.GetsockoptInt(int(c.fd), syscall.SOL_SOCKET, syscall.SO_ERROR); code != 0 || err != nil {
			s.lose(c)
			return
		}
		c.connected, c.began, c.due = true, time.Now(), time.Now()
		switch c.kind {
		case dripping:
			s.drip = append(s.drip, c)
		case halfway:
			_, _ = syscall.Write(int(c.fd), []byte(slowRequest[:len(slowRequest)-15])) // if it is closed already, that is seen next
		}
		s.watch(syscall.EPOLL_CTL_MOD, c, syscall.EPOLLIN|syscall.EPOLLRDHUP)
		return
	}
	var answer [512]byte
	n, err := syscall.Read(int(c.fd), answer[:])
	if n > 0 || errors.Is(err, syscall.EAGAIN) {
		return // an answer, after which it is closed
	}
	s.close(c)
	s.note(func() { s.ended = append(s.ended, time.Since(c.began)) })
}

// dripAll sends the bytes that are due.
func (s *Slow) dripAll(now time.Time) {
	for len(s.drip) > 0 && !s.drip[0].due.After(now) {
		c := s.drip[0]
		s.drip = s.drip[1:]
		if c.gone || c.sent == len(slowRequest) {
			continue
		}
		_, _ = syscall.Write(int(c.fd), []byte(slowRequest[c.sent:c.sent+1])) // if it is closed already, that is seen next
		c.sent, c.due = c.sent+1, c.due.Add(time.Second)
		s.drip = append(s.drip, c)
	}
}

func (s *Slow) lose(c *slowClient) {
	s.close(c)
	s.note(func() { s.lost++ })
}

func (s *Slow) close(c *slowClient) {
	c.gone = true
	delete(s.open, c.fd)
	_ = syscall.Close(int(c.fd)) // the kernel forgets it then
}

func (s *Slow) note(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Ended returns how long the clients stayed that were disconnected.
func (s *Slow) Ended() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// Stop ends those that are left, and returns how many were, and how many never connected.
func (s *Slow) Stop() (kept, lost int) {
	s.stop()
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept, s.lost
}
