package client

import (
	"context"
	"net"
	"testing"
	"time"
)

// AwaitWaiting returns when n calls wait for an exchange.
func (c *Client) AwaitWaiting(t *testing.T, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		c.combiner.mu.Lock()
		have := len(c.combiner.waiting)
		c.combiner.mu.Unlock()
		if have == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d calls wait, want %d", have, n)
		}
	}
}

// OpenHolds returns how many reservations are remembered.
func (c *Client) OpenHolds() int {
	c.holds.mu.Lock()
	defer c.holds.mu.Unlock()
	return len(c.holds.open)
}

// FillHolds remembers n reservations that nobody made, of which some are over.
func (c *Client) FillHolds(n, over int) {
	for i := range n {
		var id [16]byte
		id[0], id[1], id[2], id[3] = byte(i), byte(i>>8), byte(i>>16), 1
		until := time.Now().Add(time.Hour)
		if i < over {
			until = time.Now().Add(-time.Hour)
		}
		c.holds.put(id, hold{until: until})
	}
}

// DialWith has the Client connect in another way. It must not have been used yet.
func (c *Client) DialWith(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	c.own.DialContext = dial
}
