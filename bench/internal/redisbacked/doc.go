// Package redisbacked compares limiters that keep their state in Redis: decisions
// per second of many goroutines against one redis-server, how long a decision takes,
// and what it costs on both sides.
//
// A library knows how to open a limiter of its own on a server, and gives a function
// that takes one unit of a key. Everything else, such as starting the server, filling
// it with keys and letting the libraries take turns, is the same for all.
package redisbacked
