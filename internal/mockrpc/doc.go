// Package mockrpc is a JSON-RPC provider for tests, and for users who want to try a client: it has the limits
// that a vendor publishes, and refuses calls as that vendor does.
//
//	p, err := mockrpc.New(mockrpc.Config{Accounts: []mockrpc.Account{{Name: "a", Keys: []string{"k1", "k2"}}}})
//	server := httptest.NewServer(p) // calls go to server.URL + "/v2/k1"
//
// A Provider is an http.Handler, and also an http.RoundTripper that needs no network, so that clients can be
// tested in a bubble of testing/synctest.
//
// # Limits
//
// The limits belong to an account, whichever of its keys a call has. Of the preset "alchemy" they count
// throughput units, by budget's table of costs, over ten seconds. The vendor's text can be read in two ways,
// and a call is refused if either reading refuses it: a bucket of ten seconds' units that is refilled at the
// rate, or at most so many units in any ten seconds. Of the preset "generic" they count calls: at most so many
// in any second and in any minute, exactly. A batch costs what the vendor's rule says. Refused calls are not
// charged.
//
// # Faults
//
// A Fault makes some requests fail, or answers them late, from another chain or from an old head. Faults are
// added and removed while the provider serves, by methods and over HTTP.
//
// # Administration
//
//	GET    /mock/stats         Stats as JSON
//	GET    /mock/faults        the faults in force
//	POST   /mock/faults        adds a Fault: {"status": 503, "retry_after": "2s", "count": 3, "key": "k1"}
//	DELETE /mock/faults        removes all, DELETE /mock/faults/1 one
//
// Whoever reaches the provider can use them: it belongs on loopback.
//
// # What it is not
//
// The chain is invented: blocks and logs follow from their numbers, hashes are SHA-256, no state changes, and
// nothing is signed or verified. For a real EVM use a development node such as anvil.
package mockrpc
