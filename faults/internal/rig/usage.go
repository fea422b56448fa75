package rig

import "time"

// Usage is what a process has of the machine. It is known on Linux only, and zero
// elsewhere. How many goroutines there are cannot be seen from outside, but each that
// waits for Redis has a connection, and each that the system blocks has a thread.
type Usage struct {
	RSS     int64 // bytes
	Threads int64
	FDs     int64 // open files and connections

	// CPU is the time that it has run so far.
	CPU time.Duration
}
