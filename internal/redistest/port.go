package redistest

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Systems take the ports of outgoing connections from 32,768 up. Ports of servers,
// 12,000 to 19,999, and of their cluster buses, 10,000 higher, lie below, so nobody
// takes one by chance while its server is down.
const (
	firstPort = 12_000
	portCount = 8_000
	busOffset = 10_000 // Redis's own rule for the port of the cluster bus
)

// ports holds those given out in this process, so that a test cannot get the port
// of a server that another test has killed and will start again.
var ports = struct {
	mu    sync.Mutex
	given map[int]bool
}{given: map[int]bool{}}

var errNoPort = errors.New("redistest: found no free port from 12000 to 19999")

// takePort returns a port that was free a moment ago, along with its bus port.
// Another process may take it before the caller does.
func takePort() (int, error) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	for range 1000 {
		port := firstPort + rand.IntN(portCount)
		if !ports.given[port] && isFree(port) && isFree(port+busOffset) {
			ports.given[port] = true
			return port, nil
		}
	}
	return 0, errNoPort
}

func givePortBack(port int) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	delete(ports.given, port)
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
