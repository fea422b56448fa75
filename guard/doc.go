// Package guard decides who may call which endpoint of a server, and what happens to callers who
// do not stop.
package guard
