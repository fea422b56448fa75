package redistest

import (
	"testing"
	"time"
)

const (
	pollEvery      = 3 * time.Millisecond
	startLimit     = 10 * time.Second // for one server to answer
	convergeLimit  = 20 * time.Second // for several servers to agree
	commandTimeout = 5 * time.Second  // for Do
	pollTimeout    = time.Second      // for one question in a wait
)

// await asks check again and again until it returns nil. After limit it ends the
// test and tells the last reason.
func await(t testing.TB, what string, limit time.Duration, check func() error) {
	t.Helper()
	end := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("redistest: waited %v for %s: %v", limit, what, err)
		}
		time.Sleep(pollEvery)
	}
}
