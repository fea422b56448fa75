// Package apitest has fixtures for the tests of the daemon's protocols: a manual clock,
// policies and callers.
//
//	clock := apitest.NewClock()
//	table := apitest.Table(t, clock.Now)
//	…
//	clock.Pass(time.Second)
package apitest
