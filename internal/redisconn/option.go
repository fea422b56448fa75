package redisconn

import (
	"math/bits"
	"net"
	"time"

	"github.com/redis/rueidis"
)

const (
	// clusterRefresh is how often the slot table is read from the nodes. MOVED replies and
	// broken connections trigger that, too.
	clusterRefresh = 10 * time.Second

	// sentinelRefresh is how often a Sentinel is queried for the primary. It also publishes
	// changes, but only to clients that are connected at that time.
	sentinelRefresh = 5 * time.Second

	// pingEvery is how often an idle connection is pinged, so that no proxy or firewall drops
	// it. Silence while a reply is due is detected sooner, by silenceConn.
	pingEvery = 30 * time.Second

	// mostRedirections ends redirection loops between nodes that disagree.
	mostRedirections = 5

	// bufferSize is that of each connection's two buffers. A pipeline of decisions has half of
	// it. rueidis's half a megabyte would be most of a daemon's memory, and once more whenever
	// it connects again.
	bufferSize = 64 << 10
)

// options returns the settings of a client for decisions. The Config must have its
// defaults.
func (c Config) options(d *dialer) rueidis.ClientOption {
	settings := net.Dialer{
		Timeout:   c.DialTimeout,
		KeepAlive: pingEvery, // for rueidis, the time between its own pings of a quiet connection
	}
	d.plain = c.Dial
	if !d.polite { // those have deadlines, which rueidis sets where one goroutine sends and receives
		d.most = c.Timeout
	}
	return rueidis.ClientOption{
		InitAddress: c.Addrs,
		Username:    c.Username,
		Password:    c.Password.Reveal(),
		SelectDB:    c.DB,
		ClientName:  c.ClientName,
		TLSConfig:   c.TLS,
		Dialer:      settings,
		DialCtxFn:   d.dial,
		Sentinel: rueidis.SentinelOption{
			MasterSet:               c.Sentinel,
			Username:                c.SentinelUsername,
			Password:                c.SentinelPassword.Reveal(),
			ClientName:              c.ClientName,
			TLSConfig:               c.TLS,
			Dialer:                  settings,
			TopologyRefreshInterval: sentinelRefresh,
		},
		ClusterOption: rueidis.ClusterOption{
			ShardsRefreshInterval: clusterRefresh,
			MaxMovedRedirections:  mostRedirections,
		},
		ConnWriteTimeout:  c.Timeout,
		PipelineMultiplex: multiplex(c.Conns),
		DisableRetry:      true, // a decision charges
		DisableCache:      true, // nothing here is read twice
		AlwaysPipelining:  true, // or else the first command to time out closes the connection
		ClientSetInfo:     rueidis.DisableClientSetInfo,

		ReadBufferEachConn:  bufferSize,
		WriteBufferEachConn: bufferSize,
	}
}

// oneOptions returns the settings of a client with one connection, to one server.
func (c Config) oneOptions(d *dialer, addr string) rueidis.ClientOption {
	o := c.options(d)
	o.InitAddress = []string{addr}
	o.Sentinel.MasterSet = ""
	o.ForceSingleClient = true
	o.PipelineMultiplex = multiplex(1)
	return o
}

// multiplex returns rueidis's ClientOption.PipelineMultiplex, the exponent of two. There, 0
// may mean more than one connection, and -1 does not.
func multiplex(conns int) int {
	if conns == 1 {
		return -1
	}
	return bits.TrailingZeros(uint(conns))
}
