package respapi

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/resp"
	"github.com/weirlimit/weir/store/memstore"
)

// The floor that PERFORMANCE compares with is a server that knows PING and nothing else:
// it reads, counts the commands by their last line, and writes as many replies at once.

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

// realFixture is a server with clocks that run and nobody who watches.
func realFixture(tb testing.TB) *fixture {
	tb.Helper()
	f := &fixture{}
	f.setClients(tb, false)
	store, err := memstore.New(memstore.Config{MaxKeys: 1 << 20})
	if err != nil {
		tb.Fatal(err)
	}
	g, err := guard.New(store, f.state.Load().Rules)
	if err != nil {
		tb.Fatal(err)
	}
	if f.table, err = NewTable(1<<20, nil); err != nil {
		tb.Fatal(err)
	}
	f.Server = New(Config{
		Guard: g, State: f.state.Load, Observe: func(*guard.Record) {}, Throttler: f.table,
		Log: slog.New(slog.DiscardHandler), Idle: DefaultIdle,
	})
	tb.Cleanup(f.cancel)
	return f
}

// BenchmarkServer measures commands over loopback, as many at once as depth says, by
// connections that wait for the replies. Compare each with the floor of the same depth.
func BenchmarkServer(b *testing.B) {
	floor, weir := floorServer(b), realFixture(b).listen(b)
	for _, depth := range []int{1, 16} {
		for _, x := range []struct{ name, address, command string }{
			{"floor", floor, multibulk("PING")},
			{"ping", weir, multibulk("PING")},
			{"check", weir, multibulk("WEIR.CHECK", "default", "user:%07d")},
			{"throttle", weir, multibulk("CL.THROTTLE", "user:%07d", "15", "30", "60")},
		} {
			b.Run(fmt.Sprintf("%s-%d", x.name, depth), func(b *testing.B) {
				b.SetParallelism(8) // connections per processor
				b.RunParallel(func(pb *testing.PB) { ask(b, pb, x.address, x.command, depth) })
			})
		}
	}
}

// ask sends pipelines of a command and reads the replies.
func ask(b *testing.B, pb *testing.PB, address, command string, depth int) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		b.Error(err)
		return
	}
	defer c.Close()
	command = strings.Replace(command, "$9\r\nuser:%07d", "$12\r\nuser:%07d", 1) // as long as it will be
	var out bytes.Buffer
	in := bufio.NewReader(c)
	for n := 0; ; n++ {
		sent := 0
		for out.Reset(); sent < depth && pb.Next(); sent++ {
			if strings.Contains(command, "%07d") {
				fmt.Fprintf(&out, command, (n*depth+sent)%100_000)
			} else {
				out.WriteString(command)
			}
		}
		if sent == 0 {
			return
		}
		if _, err := c.Write(out.Bytes()); err != nil {
			b.Error(err)
			return
		}
		for range sent {
			if err := skipReply(in); err != nil {
				b.Error(err)
				return
			}
		}
	}
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

// BenchmarkTable measures CL.THROTTLE's table.
func BenchmarkTable(b *testing.B) {
	for _, x := range []struct {
		name string
		of   func(i int) Numbers
	}{
		{"same", func(int) Numbers { return Numbers{16, 30, 60} }},
		{"other", func(i int) Numbers { return Numbers{int64(1 + i%1000), int64(1 + i%997), int64(1 + i%991)} }},
	} {
		b.Run(x.name, func(b *testing.B) {
			table, err := NewTable(0, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := table.Throttle(context.Background(), "", "alice", x.of(i), 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
