package respapi

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Replies come in the order of commands, and those of a pipeline in one write.
func TestPipeline(t *testing.T) {
	f := newFixture(t)
	var in, want strings.Builder
	for i := range 500 {
		fmt.Fprintf(&in, "ECHO %d\r\n", i)
		fmt.Fprintf(&want, "$%d\r\n%d\r\n", len(fmt.Sprint(i)), i)
	}
	for _, piece := range []int{0, 1, 7, 1000} {
		s := &script{inputs: []string{in.String()}, piece: piece}
		newConn(f.Server, s).serve()
		if s.replies[0] != want.String() {
			t.Errorf("in pieces of %d the replies differ", piece)
		}
	}
	w := &writes{Conn: &script{inputs: []string{strings.Repeat("PING\r\n", 100)}}}
	newConn(f.Server, w).serve()
	if w.n != 1 {
		t.Errorf("%d writes for a pipeline", w.n)
	}
}

// writes counts them.
type writes struct {
	net.Conn
	n int
}

func (w *writes) Write(b []byte) (int, error) {
	w.n++
	return w.Conn.Write(b)
}

// Very many commands in one go, from a peer that reads only when it cannot send more, cost
// no more than the buffers, also if replies are much longer than commands.
func TestMillionCommands(t *testing.T) {
	for _, tt := range []struct {
		name, command string
		n             int
	}{
		{"short", multibulk("PING"), 1_000_000},
		{"long", multibulk("ECHO", strings.Repeat("x", 60<<10)), 200},
		{"long replies", multibulk("COMMAND", "DOCS"), 10_000},
		{"errors", multibulk("GET", "a"), 100_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { wantBounded(t, tt.command, lighter(tt.n)) })
		})
	}
}

// wantBounded sends a command so many times, and looks at the memory whenever both sides are
// stuck.
func wantBounded(t *testing.T, command string, n int) {
	t.Helper()
	f := newFixture(t)
	reply := len(f.play(command)[0])
	counted := f.Stats().Commands
	all := bytes.Repeat([]byte(command), n)
	before := heap()
	peer, ended := pipe(t, f)
	var sent sync.WaitGroup
	sent.Go(func() {
		if _, err := peer.Write(all); err != nil {
			t.Error(err)
		}
	})
	var grown int64
	for left := int64(n * reply); left > 0; left -= int64(n*reply/4 + 1) {
		synctest.Wait()
		grown = max(grown, heap()-before)
		if _, err := io.CopyN(io.Discard, peer, min(left, int64(n*reply/4+1))); err != nil {
			t.Error(err)
		}
	}
	sent.Wait()
	runtime.KeepAlive(all)
	if grown > 512<<10 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	peer.Close()
	<-ended
	if got := f.Stats().Commands - counted; got != int64(n) {
		t.Errorf("%d commands were counted, want %d", got, n)
	}
}

// Sockets that send nothing, or half a command, cost a goroutine and a small buffer.
func TestHalfOpen(t *testing.T) {
	f := realFixture(t)
	address := f.listen(t)
	before, routines := heap(), runtime.NumGoroutine()
	const n = 200
	for i := range n {
		c, r := dial(t, address)
		if i%2 > 0 {
			continue
		}
		fmt.Fprintf(c, "PING\r\n*64\r\n$65536\r\nab")
		if err := skipReply(r); err != nil { // it has come
			t.Fatal(err)
		}
	}
	for f.Stats().Conns < n {
		time.Sleep(time.Millisecond)
	}
	grown := heap() - before
	t.Logf("%d bytes and %.1f goroutines for each of %d sockets", grown/n, float64(runtime.NumGoroutine()-routines)/n, n)
	if grown/n > 32<<10 { // both ends and their readers
		t.Errorf("%d bytes for each socket", grown/n)
	}
}

// pipe is one end of an in-memory connection inside a bubble.
func pipe(t *testing.T, f *fixture) (peer net.Conn, ended chan struct{}) {
	t.Helper()
	a, b := net.Pipe()
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		newConn(f.Server, b).serve()
		b.Close()
	}()
	t.Cleanup(func() { a.Close() })
	return a, ended
}

func TestTimeouts(t *testing.T) {
	for _, tt := range []struct {
		name    string
		clients []string
		send    string
		replies bool
		drip    time.Duration // between bytes of a command that never ends
		want    time.Duration
	}{
		{name: "silent", want: DefaultIdle},
		{name: "idle after a command", send: "PING\r\n", replies: true, want: DefaultIdle},
		{name: "half a command", send: "*1\r\n$4\r\nPI", want: restTimeout},
		{name: "in drops", send: "*1\r\n$4000\r\n", drip: time.Second, want: restTimeout},
		{name: "nobody knows who", clients: []string{"alice"}, want: restTimeout},
		{name: "does not read", send: "PING\r\n", want: writeTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, tt.clients...)
				peer, ended := pipe(t, f)
				began := time.Now()
				io.WriteString(peer, tt.send)
				if tt.replies {
					io.ReadFull(peer, make([]byte, len("+PONG\r\n")))
				}
				for tt.drip > 0 {
					time.Sleep(tt.drip)
					if _, err := peer.Write([]byte{'x'}); err != nil {
						break
					}
				}
				<-ended
				if took := time.Since(began); took < tt.want*3/4 || took > tt.want+time.Second {
					t.Errorf("ended after %v, want about %v", took, tt.want)
				}
			})
		})
	}
}

// A client that is never late with the rest of a command stays, although each read ends inside one;
// who is late with one goes, whatever was carried out before.
func TestAlwaysHalfACommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		peer, ended := pipe(t, f)
		go io.Copy(io.Discard, peer)
		ping := multibulk("PING")
		io.WriteString(peer, ping[:7])
		for range 60 {
			time.Sleep(restTimeout - time.Second)
			if _, err := io.WriteString(peer, ping[7:]+ping+ping[:7]); err != nil {
				t.Fatalf("cut off, with each command whole within %v: %v", restTimeout-time.Second, err)
			}
		}
		last := time.Now()
		<-ended
		if took := time.Since(last); took != restTimeout {
			t.Errorf("the last half was given %v, want %v", took, restTimeout)
		}
	})
}

// Without an idle time-out silence is fine.
func TestNoIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.cfg.Idle = 0
		peer, ended := pipe(t, f)
		for range 3 {
			time.Sleep(24 * time.Hour)
			io.WriteString(peer, "PING\r\n")
			if _, err := io.ReadFull(peer, make([]byte, len("+PONG\r\n"))); err != nil {
				t.Fatal(err)
			}
		}
		peer.Close()
		<-ended
	})
}

// Shutdown under load: every command that was carried out is answered, the first that was
// not gets an error, and nothing comes after that but more of the same and the end.
func TestShutdownUnderLoad(t *testing.T) {
	for _, depth := range []int{1, 50} {
		t.Run(fmt.Sprint(depth), func(t *testing.T) {
			f := newFixture(t)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- f.Serve(l) }()
			var (
				replies atomic.Int64
				wg      sync.WaitGroup
			)
			for i := range 16 {
				c, r := dial(t, l.Addr().String())
				io.WriteString(c, "PING\r\n") // a connection that is not accepted yet gets no reply
				if line, err := r.ReadString('\n'); err != nil || line != "+PONG\r\n" {
					t.Fatal(line, err)
				}
				wg.Go(func() { replies.Add(int64(hammer(t, c, r, i, depth))) })
			}
			f.awaitRecords(1000)
			ctx, cancel := contextWithTimeout(5 * time.Second)
			defer cancel()
			if err := f.Shutdown(ctx); err != nil {
				t.Error(err)
			}
			if err := <-ended; err != ErrClosed {
				t.Error(err)
			}
			wg.Wait()
			if done := int64(len(f.records)); replies.Load() != done || done == 0 {
				t.Errorf("%d replies to %d decisions", replies.Load(), done)
			}
		})
	}
}

// awaitRecords waits until so many decisions were made.
func (f *fixture) awaitRecords(n int) {
	for {
		f.mu.Lock()
		have := len(f.records)
		f.mu.Unlock()
		if have >= n {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// hammer sends pipelines until the server says that it stops, and returns how many replies
// it got before.
func hammer(t *testing.T, c net.Conn, r *bufio.Reader, id, depth int) (replies int) {
	defer c.Close()
	batch := []byte(strings.Repeat(multibulk("WEIR.CHECK", "default", fmt.Sprint("user", id)), depth))
	for {
		_, sendErr := c.Write(batch)
		for range depth {
			if first, err := r.Peek(1); err == nil && first[0] == '-' {
				wantStopping(t, r)
				return replies
			}
			if err := skipReply(r); err != nil {
				t.Errorf("after %d replies: %v (sent: %v)", replies, err, sendErr)
				return replies
			}
			replies++
		}
	}
}

// wantStopping reads what a server says that stops, at least once, to the end.
func wantStopping(t *testing.T, r *bufio.Reader) {
	t.Helper()
	rest, err := io.ReadAll(r)
	if err != nil {
		t.Error(err)
	}
	replies := strings.Count(string(rest), "-"+stopping+"\r\n")
	if replies == 0 || len(rest) != replies*len("-"+stopping+"\r\n") {
		t.Errorf("%q after the server stopped", rest)
	}
}

// A command that comes after the server has stopped gets an error that says it was not carried out,
// though it came in pieces. Who sends nothing is let go after a while.
func TestShutdownTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		near, far := net.Pipe()
		f.start(near)
		silent, other := net.Pipe()
		f.start(other)
		synctest.Wait()
		began := time.Now()
		stopped := make(chan error, 1)
		go func() { stopped <- f.Shutdown(context.Background()) }()
		check := multibulk("WEIR.CHECK", "default", "late")
		for _, piece := range []string{check[:10], check[10:]} {
			time.Sleep(shutdownReplyFor / 3)
			go io.WriteString(far, piece)
		}
		wantStopping(t, bufio.NewReader(far))
		if rest, err := io.ReadAll(silent); err != nil || len(rest) > 0 {
			t.Errorf("the silent one got %q, %v", rest, err)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != lastRead+shutdownReplyFor+lastRead+lingerBlind {
			t.Errorf("took %v", took)
		}
		if len(f.records) != 0 {
			t.Errorf("%d decisions, want none", len(f.records))
		}
	})
}

// A connection that sees that the server stops before it is woken has the full time for its shutdown reply,
// too.
func TestShutdownWakesLate(t *testing.T) {
	f := newFixture(t)
	near, far := net.Pipe()
	defer far.Close()
	c := &wokenLate{Conn: near, reads: make(chan struct{}, 1), before: func() {
		io.WriteString(far, "PING\r\n") // after which the connection looks whether it goes on
		if _, err := io.ReadFull(far, make([]byte, len("+PONG\r\n"))); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * lastRead) // in which it must not have begun to wait for late commands
	}}
	f.start(c)
	<-c.reads
	stopped := make(chan error, 1)
	go func() { stopped <- f.Shutdown(context.Background()) }()
	for !f.draining.Load() {
		time.Sleep(time.Millisecond)
	}
	f.awaitWoken()
	time.Sleep(shutdownReplyFor / 10)
	go io.WriteString(far, "PING\r\n")
	wantStopping(t, bufio.NewReader(far))
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// wokenLate is a connection that has something happen before it is woken.
type wokenLate struct {
	net.Conn
	reads  chan struct{} // signalled by a Read, but not by each
	before func()
}

func (c *wokenLate) Read(b []byte) (int, error) {
	select {
	case c.reads <- struct{}{}:
	default:
	}
	return c.Conn.Read(b)
}

func (c *wokenLate) SetReadDeadline(t time.Time) error {
	if t.Before(time.Unix(2, 0)) && !t.IsZero() {
		c.before()
	}
	return c.Conn.SetReadDeadline(t)
}

// A connection that stays open is force-closed when Shutdown's context ends.
func TestShutdownCutsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		near, far := net.Pipe()
		f.start(near)
		var sent sync.WaitGroup
		sent.Go(func() { // and nobody reads
			for {
				if _, err := io.WriteString(far, "PING 0123456789\r\n"); err != nil {
					return
				}
			}
		})
		synctest.Wait() // for the server to be stuck with a reply
		began := time.Now()
		ctx, cancel := contextWithTimeout(100 * time.Millisecond)
		defer cancel()
		if err := f.Shutdown(ctx); err != context.DeadlineExceeded || time.Since(began) != 100*time.Millisecond {
			t.Errorf("err = %v after %v", err, time.Since(began))
		}
		sent.Wait()
		if f.Stats().Conns != 0 {
			t.Error("the connection is still there")
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Serve(l); err != ErrClosed {
			t.Errorf("served after that: %v", err)
		}
	})
}

// A connection that cannot be half-closed still gets them.
func TestShutdownIdle(t *testing.T) {
	f := realFixture(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go f.Serve(blind{l})
	c, r := dial(t, l.Addr().String())
	fmt.Fprintf(c, "PING\r\n")
	if err := skipReply(r); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := contextWithTimeout(5 * time.Second)
	defer cancel()
	if err := f.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if _, err := r.ReadByte(); err != io.EOF {
		t.Errorf("err = %v, want the end", err)
	}
}

// blind hides all but net.Conn's methods.
type blind struct{ net.Listener }

func (b blind) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	return struct{ net.Conn }{c}, err
}

// A panic ends a connection, not the daemon, and the log tells.
func TestPanic(t *testing.T) {
	f := newFixture(t)
	var log bytes.Buffer
	f.cfg.Core.Log = slog.New(slog.NewTextHandler(&log, nil))
	f.throttler = nil
	f.play("CL.THROTTLE k 1 1 1\r\n")
	if !strings.Contains(log.String(), "a command panicked") {
		t.Errorf("the log is %q", log.String())
	}
	f.want(t, "PING", "+PONG")
}

// Whatever is sent, the connection's loop neither panics nor says something that is no
// reply.
func FuzzConn(f *testing.F) {
	for _, in := range []string{
		"PING\r\n", "*1000000000\r\n", "*1\r\n$-2\r\n", multibulk("WEIR.CHECK", "mixed", "k", "1", "BY", "ip", "a", "UNIT", "tokens", "5"),
		multibulk("HELLO", "3", "AUTH", "a", "b", "SETNAME", "x") + "CLIENT LIST\r\nCOMMAND DOCS\r\nINFO\r\n",
		"CL.THROTTLE k 15 30 60\r\nRESET\r\nQUIT\r\nPING\r\n", "WEIR.RESERVE tight k 1 TTL 5\r\nWEIR.COMMIT AQ 1 UNIT a 1\r\nWEIR.RENEW x\r\n",
	} {
		f.Add([]byte(in), uint8(0))
		f.Add([]byte(in), uint8(3))
	}
	f.Fuzz(func(t *testing.T, in []byte, piece uint8) {
		fix := newFixture(t)
		s := &script{inputs: []string{string(in)}, piece: int(piece)}
		if len(in) == 0 {
			return
		}
		var log bytes.Buffer
		fix.cfg.Core.Log = slog.New(slog.NewTextHandler(&log, nil))
		newConn(fix.Server, s).serve()
		if log.Len() > 0 {
			t.Fatalf("%q: %s", in, log.String())
		}
		for rest := s.replies[0]; rest != ""; {
			var ok bool
			if rest, ok = cutReply(rest); !ok {
				t.Fatalf("%q: %q is no reply", in, s.replies[0])
			}
		}
	})
}

// cutReply takes one reply off.
func cutReply(in string) (rest string, ok bool) {
	line, rest, ok := strings.Cut(in, "\r\n")
	if !ok || line == "" || strings.ContainsAny(line, "\r\n") {
		return "", false
	}
	n, number := parseInt([]byte(line[1:]))
	switch line[0] {
	case '+', '-', '_', '#', ',':
		return rest, true
	case ':':
		return rest, number
	case '$', '=':
		if n == -1 {
			return rest, true
		}
		if !number || n < 0 || int64(len(rest)) < n+2 || rest[n:n+2] != "\r\n" {
			return "", false
		}
		return rest[n+2:], true
	case '%':
		n *= 2
	case '*', '~':
	default:
		return "", false
	}
	for range n {
		if rest, ok = cutReply(rest); !ok {
			return "", false
		}
	}
	return rest, number
}

// A reservation with MAXWAIT waits for one that is settled. Meanwhile the replies before it have been written, and
// the commands after it do not wait themselves.
func TestReserveWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		first := f.play("WEIR.RESERVE slots k 2\r\n")[0]
		id := strings.Split(first, "\r\n")[2]
		peer, ended := pipe(t, f)
		began := time.Now()
		go io.WriteString(peer, "PING\r\nWEIR.RESERVE slots k 1 TTL 5000 MAXWAIT 4000\r\nWEIR.RESERVE slots k 2\r\nWEIR.CHECK tight k 3\r\nWEIR.CHECK tight k 1\r\n")
		r := bufio.NewReader(peer)
		wantLines(t, r, "+PONG")
		if time.Since(began) != 0 {
			t.Errorf("the reply before was written after %v", time.Since(began))
		}
		time.Sleep(3 * time.Second)
		f.play("WEIR.CANCEL " + id + "\r\n")
		wantLines(t, r, "*6", "", "", ":1", ":2", ":1", ":0", "")
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it waited for %v", took)
		}
		wantLines(t, r, "*6", "$-1", ":0", "", "", "", "", "*5", ":0", ":2", ":2", ":-1", "", "*5", ":1", ":2", ":1", ":0", "")
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("commands after it waited: %v", took)
		}
		peer.Close()
		<-ended
	})
}

// wantLines reads as many lines and compares those that are not "".
func wantLines(t *testing.T, r *bufio.Reader, want ...string) {
	t.Helper()
	for i, line := range want {
		got, err := r.ReadString('\n')
		if err != nil || line != "" && got != line+"\r\n" {
			t.Fatalf("line %d: %q, %v; want %q", i, got, err, line)
		}
	}
}
