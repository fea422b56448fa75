//go:build !unix

package redisconn

import (
	"net"
	"sync/atomic"
)

// eagerly is for systems where connections can be read without waiting.
func eagerly(conn net.Conn, _ *atomic.Bool) net.Conn { return conn }
