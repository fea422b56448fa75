package respapi

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/resp"
	"github.com/weirlimit/weir/server/internal/observe"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/weirprom"
)

// The floor is a server that knows PING and nothing else, with the same reader and as few
// system calls, but no clock, no time-outs and no commands to look up.

func floorServer(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serveFloor(c)
		}
	}()
	tb.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

func serveFloor(c net.Conn) {
	defer c.Close()
	r := resp.NewReader(c, resp.Limits{})
	var out []byte
	for {
		args, err := r.Next()
		if err != nil {
			return
		}
		if args != nil {
			out = append(out, "+PONG\r\n"...)
			continue
		}
		if len(out) > 0 {
			if _, err := c.Write(out); err != nil {
				return
			}
			out = out[:0]
		}
		if r.Fill() != nil {
			return
		}
	}
}

// realFixture is a server with clocks that run and whose decisions are counted, as a daemon's.
func realFixture(tb testing.TB) *fixture {
	tb.Helper()
	f := &fixture{}
	f.setClients(tb, false)
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	f.decideBy(tb, store)
	o := observe.New(weirprom.Memory, slog.New(slog.DiscardHandler))
	f.cfg.Core.Observe, f.cfg.Core.ObserveEach, f.cfg.ObserveAdmitted = o.Decided, o.DecidedEach, o.Admitted
	tb.Cleanup(f.cancel)
	return f
}

// BenchmarkBesideFloor measures commands over loopback by 16 connections that wait for the
// replies, as many commands at once as depth says. Rounds of the floor and of the server
// take turns, so that both meet the same neighbours. It reports commands per second of
// the server, and the median of its share of the floor's.
func BenchmarkBesideFloor(b *testing.B) {
	floor, weir := floorServer(b), realFixture(b).listen(b)
	ping := func(int) string { return multibulk("PING") }
	for _, depth := range []int{1, 16} {
		for _, x := range []struct {
			name    string
			lines   int // of a reply
			command func(i int) string
		}{
			{"ping", 1, ping},
			{"check-hot", 6, func(int) string { return multibulk("WEIR.CHECK", "default", "alice") }},
			{"check", 6, func(i int) string { return multibulk("WEIR.CHECK", "default", fmt.Sprintf("user:%07d", i)) }},
			{"throttle", 6, func(i int) string {
				return multibulk("CL.THROTTLE", fmt.Sprintf("user:%07d", i), "15", "30", "60")
			}},
		} {
			b.Run(fmt.Sprintf("%s-%d", x.name, depth), func(b *testing.B) {
				least := newCallers(b, floor, depth, 1, ping)
				most := newCallers(b, weir, depth, x.lines, x.command)
				var shares []float64
				var took time.Duration
				commands := 0
				for b.Loop() {
					f, w := least.round(b), most.round(b)
					shares = append(shares, float64(f)/float64(w))
					took += w
					commands += len(most) * roundLength * depth
				}
				slices.Sort(shares)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(commands)/took.Seconds(), "commands/s")
				b.ReportMetric(shares[len(shares)/2], "floor")
			})
		}
	}
}

// roundLength is how many pipelines each caller of a round sends.
const roundLength = 100

// A caller is a connection with what it sends.
type caller struct {
	conn  net.Conn
	sends [][]byte
	lines int // of the replies to one of them
	buf   []byte
}

type callers []*caller

func newCallers(b *testing.B, address string, depth, lines int, command func(i int) string) (all callers) {
	b.Helper()
	for n := range 16 {
		c, _ := dial(b, address)
		_ = c.SetDeadline(time.Time{})
		one := &caller{conn: c, lines: lines * depth, buf: make([]byte, 16<<10)}
		for i := range roundLength {
			var out strings.Builder
			for d := range depth {
				out.WriteString(command((n*roundLength+i)*depth + d))
			}
			one.sends = append(one.sends, []byte(out.String()))
		}
		all = append(all, one)
	}
	return all
}

// round has all callers send what they have, and returns how long it took.
func (all callers) round(b *testing.B) time.Duration {
	began := time.Now()
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() {
			for _, send := range c.sends {
				if err := c.call(send); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

// call sends commands and reads as many lines as their replies have.
func (c *caller) call(send []byte) error {
	if _, err := c.conn.Write(send); err != nil {
		return err
	}
	for lines := 0; lines < c.lines; {
		n, err := c.conn.Read(c.buf)
		if err != nil {
			return err
		}
		lines += bytes.Count(c.buf[:n], []byte{'\n'})
	}
	return nil
}

// skipReply reads a simple reply, or an array of simple ones.
func skipReply(in *bufio.Reader) error {
	line, err := in.ReadSlice('\n')
	if err != nil || line[0] != '*' {
		return err
	}
	for range line[1] - '0' {
		if _, err := in.ReadSlice('\n'); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkExecute measures what a command costs without the network.
func BenchmarkExecute(b *testing.B) {
	for _, line := range []string{"PING", "WEIR.CHECK default alice", "WEIR.CHECK default alice 1 BY ip 192.0.2.1", "WEIR.PEEK default alice", "CL.THROTTLE alice 15 30 60"} {
		b.Run(strings.ReplaceAll(line, " ", "_"), func(b *testing.B) {
			c := newConn(realFixture(b).Server, &script{})
			args := bytes.Fields([]byte(line))
			b.ReportAllocs()
			for b.Loop() {
				c.out = c.out[:0]
				c.execute(args)
			}
		})
	}
}

// BenchmarkAnswer measures what a command in a pipeline costs without the network: to be
// read, decided on, counted and answered. Keys come in a random order.
func BenchmarkAnswer(b *testing.B) {
	const keys, depth = 100_000, 16
	for _, x := range []struct {
		name    string
		command func(key string) string
	}{
		{"ping", func(string) string { return multibulk("PING") }},
		{"check", func(key string) string { return multibulk("WEIR.CHECK", "default", key) }},
		{"throttle", func(key string) string { return multibulk("CL.THROTTLE", key, "999999", "1000000", "1") }},
	} {
		b.Run(x.name, func(b *testing.B) {
			var sends [][]byte
			for chunk := range slices.Chunk(rand.New(rand.NewPCG(1, 2)).Perm(keys), depth) {
				var send []byte
				for _, i := range chunk {
					send = append(send, x.command(fmt.Sprintf("%020d", i))...)
				}
				sends = append(sends, send)
			}
			replay := &replay{sends: sends}
			c := newConn(realFixture(b).Server, replay)
			for range sends {
				c.round(b)
			}
			b.ReportAllocs()
			for b.Loop() {
				c.round(b)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/depth, "ns/command")
		})
	}
}

// round reads what the peer sends next, and answers it.
func (c *conn) round(b *testing.B) {
	if err := c.in.Fill(); err != nil || !c.answer() {
		b.Fatal(err)
	}
}

// A replay is a peer that sends the same again and again, and reads nothing.
type replay struct {
	net.Conn
	sends [][]byte
	next  int
}

func (r *replay) Read(b []byte) (int, error) {
	r.next = (r.next + 1) % len(r.sends)
	return copy(b, r.sends[r.next]), nil
}

func (r *replay) Write(b []byte) (int, error)      { return len(b), nil }
func (r *replay) SetWriteDeadline(time.Time) error { return nil }

// BenchmarkRedisBenchmark is BenchmarkBesideFloor with redis-benchmark as the client.
func BenchmarkRedisBenchmark(b *testing.B) {
	floor, weir := floorServer(b), realFixture(b).listen(b)
	for _, depth := range []string{"1", "16"} {
		for _, x := range []struct {
			name    string
			command []string
		}{
			{"ping", []string{"PING"}},
			{"check-hot", []string{"WEIR.CHECK", "default", "alice"}},
			{"check-100k", []string{"WEIR.CHECK", "default", "user:__rand_int__"}},
			{"throttle-100k", []string{"CL.THROTTLE", "user:__rand_int__", "15", "30", "60"}},
		} {
			b.Run(x.name+"-P"+depth, func(b *testing.B) {
				var shares, rates []float64
				for b.Loop() {
					f, w := redisBenchmark(b, floor, depth, "PING"), redisBenchmark(b, weir, depth, x.command...)
					shares, rates = append(shares, w/f), append(rates, w)
				}
				slices.Sort(shares)
				slices.Sort(rates)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(rates[len(rates)/2], "commands/s")
				b.ReportMetric(shares[len(shares)/2], "floor")
			})
		}
	}
}

// redisBenchmark returns commands per second.
func redisBenchmark(b *testing.B, address, depth string, command ...string) (rate float64) {
	b.Helper()
	n := map[string]string{"1": "30000", "16": "300000"}[depth]
	out := run(b, address, "", "redis-benchmark", append([]string{"-n", n, "-c", "16", "-r", "100000", "-P", depth, "--csv"}, command...)...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	fields := strings.Split(lines[len(lines)-1], `","`)
	if len(fields) < 2 {
		b.Fatalf("%q", out)
	}
	if _, err := fmt.Sscanf(fields[1], "%f", &rate); err != nil {
		b.Fatalf("%q: %v", out, err)
	}
	return rate
}
