// Package redistest starts real Redis servers for tests.
//
//	server := redistest.Start(t)                     // one server
//	sentinel := redistest.StartSentinel(t)           // primary, replica, three Sentinels
//	cluster := redistest.StartCluster(t)             // three masters, three replicas
//	relay := redistest.NewRelay(t, server.Addr())    // a bad network in front of one
//
// It needs redis-server 7.0 or later on the PATH and fails the test where there is
// none: a skipped test would look like a passed one.
//
// # What it promises
//
// Servers listen on the loopback interface only, on ports outside the range that
// systems give to outgoing connections, so that a port is still free when a server
// is started again. They keep nothing on disk unless [Config] says so. When the test
// ends, they are killed and their directory goes; if the test failed, the end of each
// server's log goes to the test's log first. On Linux they also end when the test
// process dies, for example by a time-out.
//
// Every wait has a time limit and then fails the test with what was missing. Methods
// that end the test that way belong in the test's own goroutine; [Server.Do],
// [Server.Kill], [Server.Pause], [Server.Resume] and all methods of [Relay] may be
// called from any goroutine.
//
// # Its limits
//
// A Cluster takes more than two seconds to start, because a Redis master that has just
// started waits that long before it takes writes. So does a master that is started
// again. Subtests should share a cluster where they can.
//
// Nodes of a Cluster and Sentinels tell clients where servers are, so a client finds
// its way around a Relay. Use a Relay with one server.
package redistest
