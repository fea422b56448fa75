package faults

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir/internal/redistest"
)

// clients returns how many connections a server has, without the one that counts them.
func clients(server *redistest.Server) (n int, err error) {
	reply, err := server.Do("INFO", "clients")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(reply.Text) {
		if digits, ok := strings.CutPrefix(line, "connected_clients:"); ok {
			_, err := fmt.Sscan(digits, &n)
			return n - 1, err
		}
	}
	return 0, fmt.Errorf("INFO does not tell the clients: %q", reply.Text)
}
