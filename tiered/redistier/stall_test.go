package redistier

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
)

// Where everybody was held up for longer than a node may be silent, nobody is counted out.
func TestCountAfterStall(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	relay := redistest.NewRelay(t, redis.Addr())
	c := Config{Redis: server(relay.Addr()), Every: 200 * time.Millisecond} // open gives it a time-out of 5 s
	a, b := open(t, c), open(t, c)
	awaitNodes(t, 2, a, b)
	for range 3 {
		relay.Block()
		time.Sleep(time.Second)
		relay.Unblock()
		for end := time.Now().Add(800 * time.Millisecond); time.Now().Before(end); { // it is wrong for less than a millisecond
			if a.Nodes() != 2 || b.Nodes() != 2 {
				t.Fatalf("%d and %d nodes, want 2", a.Nodes(), b.Nodes())
			}
		}
	}
}
