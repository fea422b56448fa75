// Package memstore keeps the state of many keys in the memory of one process.
//
//	table, err := memstore.New(memstore.Config{MaxKeys: 1_000_000})
//	decision, err := table.Take(ctx, policy, "alice", 1)
//
// A Table is a [weir.Limiter]. For one policy use [Keyed], which can also wait; for one limit
// without keys use [weir.Single]. To wait for a Table's keys, put a queue.Queue (package queue)
// in front.
//
// # What it costs
//
// A key under one limit takes about 21 bytes, and at most 24 if the table is at least half
// full. Rows contain no pointers for the garbage collector to scan. A decision on a key that
// was seen before is one compare-and-swap, without a lock or an allocation, if the policy's state is one
// word: one limit of GCRA, TokenBucket or FixedWindow, or one DualWindow. Policies
// of several limits, the other algorithms, new keys, reservations and batches of
// TakeAll take the lock of the key's shard; that is not lock-free. A SlidingLog
// costs 16 bytes for every charge that counts, at most 1 MiB per key, and keys with
// open reservations a few hundred bytes each; the collector has to scan those.
//
// A key may have 10,000 reservations open, a table 100,000. What Take, reserving and
// settling cost hardly depends on how many there are. A Take on a key with open reservations
// costs about two and a half times as much as on one without. The outcome of a settled reservation is
// kept until its expiry, so that settling it again returns the same: for up to 1,000 per key
// and 100,000 in all. Until then the key costs as much as one with open reservations.
//
// # What it promises
//
// One policy on one key is linearizable. TakeAll and ReserveAll are, too: they lock
// their keys' shards in order. Growth is per shard: a new key moves no more than 1,024
// rows, in practice 700, whatever the number of keys in the table.
//
// Keys are identified by a seeded 64-bit hash. The chance that any two of n keys
// collide is at most n²/2^65: three in a million for ten million keys.
// An attacker cannot choose such keys. Config.KeepKeys rules collisions out.
//
// # When it is full
//
// A table has at most Config.MaxKeys rows, and there is no background sweep. A new key in a
// full table evicts a row with nothing in use, which loses no usage. If
// its shard has none, it evicts the row with the least share of its limit in use, and
// [Stats] counts the lost units. A row that would refuse one unit now is never
// evicted, so filling the table with new keys does not unblock a refused one. If no row
// can be evicted, the new key shares one overflow row, with the limits of a single key, with all other keys
// of its policy that have no row. A key that gets a row while the overflow row is in use
// starts with a copy of it. Reset does not affect the overflow row.
//
// # Limits per call
//
// A table has at most 65,536 different sets of limits at once. Calls whose policy has
// limits of its own (per-key overrides, limits sent in Envoy requests) use them up.
// So the calls of a policy may use a quarter of those left: 11,468 if no other policy has any.
// A call with one more set gets an error that wraps weir.ErrInvalid, and nothing is charged.
// Sets whose keys have nothing in use are dropped to make room, and some sets are reserved for
// [Table.Set].
//
// # Restarts
//
// A table made with Config.Snapshots can be saved to a file and loaded from it, so
// that its counters survive a restart. See [Table.Save] and [Load].
package memstore
