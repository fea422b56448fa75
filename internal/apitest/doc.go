// Package apitest has what tests of the daemon's protocols have in common: a clock that
// stands still, policies, callers, and the files that hold what is to be answered.
//
//	clock := apitest.NewClock()
//	table := apitest.Table(t, clock.Now)
//	…
//	clock.Pass(time.Second)
//	apitest.Golden(t, "conversation.golden", got)
package apitest
