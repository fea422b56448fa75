// Package modes measures what the modes of package tiered cost and how much they admit
// too much, with one to four nodes on one redis-server, for docs/modes.md.
//
// A node is a tiered.Limiter with a store and a bus of its own, and so with connections
// of its own. All nodes live in this process.
package modes
