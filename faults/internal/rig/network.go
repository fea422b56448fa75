package rig

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// Network is a proxy between the daemons and a server, which can fail.
type Network struct {
	t     testing.TB
	proxy *toxiproxy.Proxy
	port  int
}

// NewNetwork starts one to a server's address.
func NewNetwork(t testing.TB, target string) *Network {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	for range 100 {
		// Systems take the ports of outgoing connections from 32,768 up, and Redis has
		// those from 12,000 in our tests: nobody takes this one while it is not used.
		port := 10_000 + rand.IntN(2000)
		listen := fmt.Sprintf("127.0.0.1:%d", port)
		n := &Network{t: t, proxy: toxiproxy.NewProxy(server, t.Name(), listen, target), port: port}
		if n.proxy.Start() == nil {
			t.Cleanup(n.proxy.Stop)
			return n
		}
	}
	t.Fatal("rig: found no free port from 10000 to 11999")
	return nil
}

// Addr returns where clients connect, as host:port.
func (n *Network) Addr() string { return fmt.Sprintf("127.0.0.1:%d", n.port) }

// Port returns the port of Addr.
func (n *Network) Port() int { return n.port }

// Connect ends Disconnect.
func (n *Network) Connect() {
	n.t.Helper()
	if err := n.proxy.Start(); err != nil {
		n.t.Fatalf("rig: the network: %v", err)
	}
}

// Disconnect closes all connections, and refuses new ones.
func (n *Network) Disconnect() { n.proxy.Stop() }

// Direction is which way a trouble concerns.
type Direction string

// The directions.
const (
	Requests Direction = "upstream"
	Replies  Direction = "downstream"
)

// Trouble is something that the network does.
type Trouble struct {
	Kind  string    // one of toxiproxy's toxics: "latency", "reset_peer", "timeout"
	To    Direction // what it is done to
	Share float64   // of the connections, 1 for all
	Value int64     // ms: the latency, or the time until the connection is closed
}

func (t Trouble) json() string {
	attribute := "timeout"
	if t.Kind == "latency" {
		attribute = "latency"
	}
	return fmt.Sprintf(`{"name":"trouble","type":%q,"stream":%q,"toxicity":%v,"attributes":{%q:%d}}`,
		t.Kind, t.To, t.Share, attribute, t.Value)
}

// Begin begins a trouble. There is one at a time.
func (n *Network) Begin(t Trouble) {
	n.t.Helper()
	if _, err := n.proxy.Toxics.AddToxicJson(strings.NewReader(t.json())); err != nil {
		n.t.Fatalf("rig: the network: %v", err)
	}
}

// End ends the trouble.
func (n *Network) End() {
	n.t.Helper()
	if err := n.proxy.Toxics.RemoveToxic(context.Background(), "trouble"); err != nil {
		n.t.Fatalf("rig: the network: %v", err)
	}
}
