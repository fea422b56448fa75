// Package prepaid is a limiter for many cores that share one limit.
//
//	lim, err := prepaid.New(weir.PerSecond(1_000_000))
//	if lim.Allow() { … }
//
// An Allow costs a third of weir.Single's with one goroutine, and less with many. Use it where
// a profile shows that Allow on one limiter contends; otherwise use weir.New, which also has
// Wait, Reserve and every algorithm.
package prepaid
