package redistier

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/redisstore"
	"github.com/weirlimit/weir/tiered"
)

func TestMain(m *testing.M) {
	if os.Getenv(nodeVariable) != "" {
		os.Exit(runNode())
	}
	// These end by themselves some seconds after a cluster has changed; see
	// redisconn.Conn.Close.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

func server(addr string) redisstore.Server { return redisstore.Server{Addrs: []string{addr}} }

// open returns a bus that is closed with the test.
func open(t testing.TB, c Config) *Bus {
	t.Helper()
	if c.Redis.Timeout == 0 {
		c.Redis.Timeout, c.Redis.DialTimeout = 5*time.Second, 5*time.Second // tests are not about a slow machine
	}
	b, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// eventually waits until something is so. After 30 s it ends the test.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 30 s for %s", what)
		}
	}
}

// ahead returns a clock that is ahead of weir.Now.
func ahead(d time.Duration) func() weir.Instant {
	return func() weir.Instant { return weir.Now().Add(d) }
}

// recorder records what a listener receives.
type recorder struct {
	nils atomic.Int64

	mu       sync.Mutex // guards messages
	messages []tiered.Message
}

// listen returns a recorder that has received the first nil.
func listen(t testing.TB, b *Bus) *recorder {
	t.Helper()
	e := &recorder{}
	t.Cleanup(b.Listen(e.receive))
	eventually(t, "the first nil", func() bool { return e.nils.Load() == 1 })
	return e
}

func (e *recorder) receive(messages []tiered.Message) {
	if messages == nil {
		e.nils.Add(1)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.messages = append(e.messages, messages...)
}

func (e *recorder) all() []tiered.Message {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]tiered.Message(nil), e.messages...)
}

// await returns the message on a key.
func (e *recorder) await(t testing.TB, key string) (found tiered.Message) {
	t.Helper()
	eventually(t, "message on "+key, func() bool {
		for _, w := range e.all() {
			if w.Key == key {
				found = w
				return true
			}
		}
		return false
	})
	return found
}

// publish publishes messages that are not lost.
func publish(t testing.TB, b *Bus, messages ...tiered.Message) {
	t.Helper()
	if err := b.Publish(t.Context(), messages); err != nil {
		t.Fatalf("publish %v: %v", messages, err)
	}
}

func reset(key string) tiered.Message {
	return tiered.Message{Kind: tiered.KeyReset, Policy: "p", Key: key}
}

// awaitMessage publishes until e receives the message: the buses may be connecting.
func awaitMessage(t testing.TB, from *Bus, e *recorder, key string) {
	t.Helper()
	n := 0
	eventually(t, "messages to flow again", func() bool {
		n++
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if from.Publish(ctx, []tiered.Message{reset(fmt.Sprint(key, n))}) != nil {
			return false
		}
		time.Sleep(5 * time.Millisecond)
		for _, w := range e.all() {
			if len(w.Key) > len(key) && w.Key[:len(key)] == key {
				return true
			}
		}
		return false
	})
}

func awaitNodes(t testing.TB, want int, all ...*Bus) {
	t.Helper()
	for i, b := range all {
		eventually(t, fmt.Sprintf("bus %d to count %d nodes", i, want), func() bool { return b.Nodes() == want })
	}
}
