// Package traffic is callers of a daemon over all of its protocols. They count what became
// of each call, from the caller's side: whether it had a complete answer, and if it had
// none, whether the daemon said that it was not carried out.
//
//	callers := traffic.Start(t, place)
//	callers.Add("HTTP", 8, traffic.UpTo(20*time.Millisecond), traffic.HTTP("/v1/check", body))
//	… stop the daemon, and tell the callers where the next one is …
//	callers.Goto(next)
//	tallies := callers.Stop()
//
// Nothing is tried again by these callers, so nothing is hidden by a second try.
package traffic
