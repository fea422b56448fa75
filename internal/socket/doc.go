// Package socket makes connections cheaper that exchange short messages, many thousand times
// a second.
//
// Package net tells Go's scheduler of each system call, because some take long. A goroutine
// in one keeps its processor for 20 µs; then the scheduler's monitor takes that away, wakes
// a thread to go on with it, and looks again 20 µs later instead of resting. To send some
// bytes over loopback takes about as long, since the kernel delivers them at once and wakes
// who waits for them. So a busy server, whose system calls never wait, pays for threads that
// come and go: in the daemon a fifth of all processor time, and a tenth of the decisions per
// second that a program gets from Redis.
//
// [Direct] leaves the scheduler out of it. The kernel is told not to wait (MSG_DONTWAIT),
// and where it would have to, the goroutine waits in Go's poller as with package net. It
// also spares the layer of files, which read and write go through.
//
// The price: a goroutine that stops the world, the garbage collector's above all, waits for
// a call to return, which takes some microseconds for each kilobyte. Only the daemon pays
// it: it wraps the connections it accepts, and makes those to Redis by [Dial]. Programs that
// import weir get package net's; see docs/adr/0014-direct-sockets.md.
package socket
