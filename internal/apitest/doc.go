// Package apitest has what tests of the daemon's protocols have in common: a clock that
// stands still, policies and callers.
//
//	clock := apitest.NewClock()
//	table := apitest.Table(t, clock.Now)
//	…
//	clock.Pass(time.Second)
package apitest
