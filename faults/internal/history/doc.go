// Package history judges what a fleet of limiters has decided, from outside.
//
// A client records of each decision when it sent the request and when it received the
// response. The decision was made at some unknown time in between. So [Excess] returns by
// how much a limit was exceeded at least, whatever these times were: it may be too low, by
// the refill of a round trip and less than one unit more, but never too high.
package history
