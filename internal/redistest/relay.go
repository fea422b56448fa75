package redistest

import (
	"bufio"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Relay passes connections on to a server and misbehaves on demand. It knows where
// RESP requests and replies begin and end, so it does not serve TLS.
type Relay struct {
	t      testing.TB // set by NewRelay, like the next three
	target string
	port   int
	wg     sync.WaitGroup // of all goroutines

	mu       sync.Mutex   // guards the fields below
	listener net.Listener // nil while refusing
	links    map[*link]bool
	drops    int      // replies still to swallow
	dropOnly []string // of these commands, of all if empty
	dropped  int
	delay    time.Duration
	gate     chan struct{} // closed while requests and replies may pass
	ended    bool          // no link may be added
}

// NewRelay starts a relay to a server's address. It ends with the test.
func NewRelay(t testing.TB, target string) *Relay {
	t.Helper()
	port, err := takePort()
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{t: t, target: target, port: port, links: map[*link]bool{}, gate: make(chan struct{})}
	close(r.gate)
	t.Cleanup(r.cleanUp)
	r.Accept()
	return r
}

func (r *Relay) cleanUp() {
	r.Refuse()
	r.end()
	r.wg.Wait()
	givePortBack(r.port)
}

// Addr returns where clients connect, as host:port.
func (r *Relay) Addr() string { return loopback(r.port) }

// DropReplies loses the replies to the next n requests with one of the commands, or
// with any if none is named: the server executes each, then the connection is closed
// instead of the reply. Clients have requests of their own, HELLO and PING for
// example, so tests of one command name it. Requests behind it on the same connection
// lose their replies, too, and do not count.
func (r *Relay) DropReplies(n int, commands ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drops, r.dropOnly = n, nil
	for _, command := range commands {
		r.dropOnly = append(r.dropOnly, strings.ToUpper(command))
	}
}

// DropNextReply is DropReplies for one reply.
func (r *Relay) DropNextReply(commands ...string) { r.DropReplies(1, commands...) }

// Dropped returns how many replies DropReplies has swallowed.
func (r *Relay) Dropped() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped
}

// Delay holds back each reply that comes from now on by d. Replies overtake nobody
// and wait side by side: ten that come together leave together.
func (r *Relay) Delay(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = d
}

// Cut closes all connections. New ones are welcome.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cutLocked()
}

func (r *Relay) cutLocked() {
	for l := range r.links {
		l.close()
	}
}

// end is a Cut that also holds for connections in the making.
func (r *Relay) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.cutLocked()
}

// Block holds back all requests and replies until Unblock. Connections stay, and new
// ones are accepted.
func (r *Relay) Block() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if isClosed(r.gate) {
		r.gate = make(chan struct{})
	}
}

// Unblock lets pass what Block has held back, and all else.
func (r *Relay) Unblock() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !isClosed(r.gate) {
		close(r.gate)
	}
}

// Refuse has new connections refused until Accept. Those that exist stay; see Cut.
func (r *Relay) Refuse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener == nil {
		return
	}
	if err := r.listener.Close(); err != nil {
		r.t.Errorf("redistest: relay: %v", err)
	}
	r.listener = nil
}

// Accept ends Refuse, on the same address.
func (r *Relay) Accept() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != nil {
		return
	}
	listener, err := net.Listen("tcp", r.Addr())
	if err != nil {
		r.t.Errorf("redistest: relay: %v", err)
		return
	}
	r.listener = listener
	r.wg.Go(func() { r.serve(listener) })
}

func (r *Relay) serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // Refuse
		}
		r.wg.Go(func() { r.connect(conn) })
	}
}

// connect links a client with the server. A server that is down looks to the client
// like one that closes the connection.
func (r *Relay) connect(client net.Conn) {
	server, err := net.DialTimeout("tcp", r.target, commandTimeout)
	if err != nil {
		client.Close()
		return
	}
	l := &link{relay: r, client: client, server: server, done: make(chan struct{}), replies: make(chan reply, 1024)}
	r.add(l)
	defer r.remove(l)
	var wg sync.WaitGroup
	for _, pump := range []func() error{l.pumpRequests, l.pumpReplies, l.deliver} {
		wg.Go(func() {
			defer l.close() // the first to end ends the others
			if err := pump(); errors.Is(err, errProtocol) {
				r.t.Errorf("redistest: relay to %s: %v", r.target, err)
			}
		})
	}
	wg.Wait()
}

func (r *Relay) add(l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.links[l] = true
	if r.ended {
		l.close()
	}
}

func (r *Relay) remove(l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.links, l)
}

// takeDrop says whether the reply to a request is to be swallowed.
func (r *Relay) takeDrop(command string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.drops == 0 || len(r.dropOnly) > 0 && !slices.Contains(r.dropOnly, command) {
		return false
	}
	r.drops--
	return true
}

func (r *Relay) countDrop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped++
}

func (r *Relay) due() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Add(r.delay)
}

func (r *Relay) currentGate() chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gate
}

// link is one connection of a client and the one to the server that belongs to it.
type link struct {
	relay          *Relay // set by connect, like the next four
	client, server net.Conn
	done           chan struct{} // closed by close
	replies        chan reply    // from pumpReplies to deliver
	closing        sync.Once

	mu      sync.Mutex // guards pending
	pending []bool     // per request without a reply, oldest first: drop it?
}

// reply is one on its way to the client.
type reply struct {
	frame []byte // nil = close the connection instead
	due   time.Time
}

func (l *link) close() {
	l.closing.Do(func() {
		close(l.done)
		l.client.Close()
		l.server.Close()
	})
}

// pumpRequests passes requests on until the connection ends.
func (l *link) pumpRequests() error {
	br := bufio.NewReader(l.client)
	for {
		frame, err := readFrame(br)
		if err != nil {
			return err
		}
		command, err := commandName(frame)
		if err != nil {
			return err
		}
		if !l.pass() {
			return nil
		}
		l.expect(command)
		if _, err := l.server.Write(frame); err != nil {
			return err
		}
	}
}

// pumpReplies hands replies to deliver, and in place of one to drop the order to
// close: replies before it still reach the client.
func (l *link) pumpReplies() error {
	br := bufio.NewReader(l.server)
	for {
		frame, err := readFrame(br)
		if err != nil {
			return err
		}
		if frame[0] != '>' && l.answered() {
			l.relay.countDrop()
			frame = nil
		}
		select {
		case l.replies <- reply{frame: frame, due: l.relay.due()}:
		case <-l.done:
			return nil
		}
	}
}

// deliver writes replies to the client when they are due.
func (l *link) deliver() error {
	for {
		select {
		case r := <-l.replies:
			if !l.sleepUntil(r.due) || !l.pass() || r.frame == nil {
				return nil
			}
			if _, err := l.client.Write(r.frame); err != nil {
				return err
			}
		case <-l.done:
			return nil
		}
	}
}

// silent lists commands without a reply of their own: confirmations come as pushes.
var silent = []string{"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"}

// expect notes a request before the server can answer it.
func (l *link) expect(command string) {
	if slices.Contains(silent, command) {
		return
	}
	drop := l.relay.takeDrop(command)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, drop)
}

// answered says whether the reply to the oldest request is to be dropped. A RESP2
// subscriber gets messages that nobody asked for.
func (l *link) answered() (drop bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) == 0 {
		return false
	}
	drop, l.pending = l.pending[0], l.pending[1:]
	return drop
}

// pass waits at the gate. It returns false if the connection ends meanwhile.
func (l *link) pass() bool {
	select {
	case <-l.relay.currentGate():
		return true
	case <-l.done:
		return false
	}
}

// sleepUntil returns false if the connection ends before t.
func (l *link) sleepUntil(t time.Time) bool {
	wait := time.Until(t)
	if wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.done:
		return false
	}
}

func isClosed(gate chan struct{}) bool {
	select {
	case <-gate:
		return true
	default:
		return false
	}
}
