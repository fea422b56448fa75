package rig

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// Relay passes connections on to a server, and resets some of them on demand, in the
// middle of whatever they do. (A Network chooses when a connection is made, and changes
// its mind about those that exist at the risk of a deadlock.)
type Relay struct {
	t        testing.TB // set by NewRelay, like the next three
	target   string
	listener net.Listener
	wg       sync.WaitGroup // of all goroutines

	mu    sync.Mutex // guards the fields below
	links map[*link]bool
	ended bool
}

// link is a client's connection and the one to the server that belongs to it.
type link struct{ client, server *net.TCPConn }

// NewRelay starts one to a server's address. It ends with the test.
func NewRelay(t testing.TB, target string) *Relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("rig: %v", err)
	}
	r := &Relay{t: t, target: target, listener: listener, links: map[*link]bool{}}
	r.wg.Go(r.accept)
	t.Cleanup(r.end)
	return r
}

// Addr returns where clients connect, as host:port.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return // end
		}
		server, err := net.Dial("tcp", r.target)
		if err != nil {
			client.Close()
			continue
		}
		l := &link{client.(*net.TCPConn), server.(*net.TCPConn)}
		if r.add(l) {
			r.wg.Go(func() { r.carry(l) })
		}
	}
}

func (r *Relay) add(l *link) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		l.close()
		return false
	}
	r.links[l] = true
	return true
}

// carry copies both ways until one side ends.
func (r *Relay) carry(l *link) {
	var wg sync.WaitGroup
	copyTo := func(to, from net.Conn) {
		defer l.close() // which ends the other direction, too
		_, _ = io.Copy(to, from)
	}
	wg.Go(func() { copyTo(l.server, l.client) })
	wg.Go(func() { copyTo(l.client, l.server) })
	wg.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.links, l)
}

// Reset resets each connection with the probability share, and returns how many.
func (r *Relay) Reset(share float64) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.links {
		if rand.Float64() < share {
			l.reset()
			n++
		}
	}
	return n
}

// reset closes both sides by RST: what was on its way is lost.
func (l *link) reset() {
	_ = l.client.SetLinger(0) // a connection that is closed already is as good
	_ = l.server.SetLinger(0)
	l.close()
}

func (l *link) close() {
	l.client.Close()
	l.server.Close()
}

func (r *Relay) end() {
	r.listener.Close()
	r.mu.Lock()
	r.ended = true
	for l := range r.links {
		l.close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}
