package rig

import (
	"testing"
	"time"
)

// Await calls check repeatedly until it returns nil. After limit it ends the test
// and tells the last reason.
func Await(t testing.TB, what string, limit time.Duration, check func() error) {
	t.Helper()
	end := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("rig: waited %v for %s: %v", limit, what, err)
		}
		time.Sleep(pollEvery)
	}
}
