// Package socket makes connections cheaper that exchange short messages, many thousand times
// a second.
//
// Package net notifies Go's scheduler of each system call, because some block. A goroutine
// in a system call keeps its processor for 20 µs; then the scheduler's monitor retakes the
// processor, wakes a thread to run it, and checks again 20 µs later instead of sleeping. Sending
// some bytes over loopback takes about as long, since the kernel delivers them at once and wakes
// the receiver. So a busy server, whose system calls never block, spends time on starting and
// stopping threads: in the daemon a fifth of all processor time, and a tenth of the decisions per
// second that a program gets from Redis.
//
// [Direct] bypasses the scheduler. System calls do not block (MSG_DONTWAIT);
// where they would, the goroutine waits in Go's poller as with package net. It
// also avoids the file layer of read and write.
//
// The cost: stopping the world, for the garbage collector above all, waits for
// a call to return, which takes some microseconds for each kilobyte. Only the daemon uses
// it: it wraps the connections that it accepts, and dials Redis with [Dial]. Programs that
// import weir use package net; see docs/adr/0014-direct-sockets.md.
package socket
