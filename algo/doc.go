// Package algo is the mathematics of rate limiting: pure step functions
// (state, now, cost) → (state, decision), without clocks, locks or goroutines.
//
// Most programs want package weir, which gives these rules a clock, names and
// safe concurrent use. Import algo to build a store of your own.
//
// # The rules
//
//	GCRA        rate and burst, never above burst + rate × time     one word
//	Bucket      GCRA as a token bucket; the same decisions           one word
//	Fixed       so many per clock or calendar window                 one word
//	Dual        so many per second and per minute together           one word
//	Anchored    windows that open with the first charge              two words
//	Sliding     a sliding window, estimated from two counters        two words
//	SlidingLog  a sliding window, exact                              a log
//	Slots       so many at once: held, not spent                     one word
//	Lending     rate and burst, shared by classes that lend          levels
//	Paced       a calendar window that some classes use evenly       one word
//
// Choose GCRA unless you know why not. Choose Fixed for limits that are published as
// "so many a day", Anchored for "so many within an hour of your first", Sliding to imitate a
// log cheaply, SlidingLog when a small limit must be exact, Dual for upstreams
// that publish both limits, Slots for work in progress, Lending where urgent work must not
// wait for other work, Paced for a month's quota that has to last.
//
// # Words
//
// The state of one key is a 64-bit word wherever it fits, so that a limiter can
// be a single compare-and-swap and a table row two words. Zero always means
// never used.
//
// # Time
//
// An instant is an int64 of Unix nanoseconds. No function reads a clock. A now
// that is earlier than one the state has seen never frees anything. A forward
// step of the clock replenishes units as if that time had passed: at most
// min(burst, rate × step), once.
//
// # Ledger
//
// Ledger combines several rules for one key, all or nothing, with reservations
// (holds), refunds, expiries and live changes of the rules. weir's limiters use it
// under their lock.
package algo
