// Package keyed compares limiters that keep many keys: time per decision, memory
// per key, what the collector makes of it, and what new keys cost.
//
// A [harness.Case] or [harness.Survey] is built from stores. A store knows how to
// open a limiter of one library, and gives a loop that asks it for one unit of
// each key. Everything else, such as filling it with a million keys, is the same
// for all.
package keyed
