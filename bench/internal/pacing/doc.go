// Package pacing compares what lets work start at a given rate and makes callers
// wait: how much of the rate it delivers, how evenly, and at what cost.
//
// A waiter knows how to open a limiter of one library and gives a function that
// waits for the next start. Everything else, such as counting starts for five
// seconds, is the same for all. The cases of nanoseconds per call have loops of
// their own, so that the call in them is direct.
package pacing
