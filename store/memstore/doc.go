// Package memstore keeps the state of many keys in the memory of one process.
//
//	table, err := memstore.New(memstore.Config{MaxKeys: 1_000_000})
//	decision, err := table.Take(ctx, policy, "alice", 1)
//
// A Table is a [weir.Limiter]. For one limit without keys use [weir.Single]; for
// waiting, put a [weir.Queue] in front.
//
// # What it costs
//
// A key under one limit takes about 21 bytes, in a table that is at least half
// full 24 at most, and the garbage collector has nothing to walk. A decision on a key that was seen before is one
// compare-and-swap, without a lock or an allocation, if the policy's state is one
// word: one limit of GCRA, TokenBucket or FixedWindow, or one DualWindow. Policies
// of several limits, the other algorithms, new keys, reservations and batches of
// TakeAll take the lock of the key's shard; that is not lock-free. A SlidingLog
// costs 16 bytes for every charge that counts, at most 1 MiB per key, and keys with
// open reservations a few hundred bytes each; those are pointers.
//
// A key may have 10,000 reservations open, a table 100,000. What Take, reserving and
// settling cost hardly depends on how many there are, and a Take beside them costs about
// two and a half times as much as one without. How a reservation was settled is
// remembered until it would have expired, for those who settle again: of 1,000 per key and
// 100,000 in all. Until then the key is decided like one with reservations.
//
// # What it promises
//
// One policy on one key is linearizable. TakeAll and ReserveAll are, too: they lock
// their keys' shards in order. Growth is per shard: a new key moves no more than 1,024
// rows, in practice 700, whatever the number of keys in the table.
//
// Keys are told apart by a seeded 64-bit hash. The chance that any two of n keys
// are taken for one is at most n²/2^65: three in a million for ten million keys.
// Nobody outside can choose such keys. Config.KeepKeys rules it out.
//
// # When it is full
//
// A table has at most Config.MaxKeys rows, and nothing sweeps it. A new key in a
// full table takes the place of one with nothing in use, which forgives nothing. If
// its shard has none, the row with the least share of its limit in use goes, and
// [Stats] counts what that forgave. A row that would refuse one unit now never
// goes, so filling the table with new keys frees nobody who is refused. If nothing
// can go, the new key shares one strict overflow row with all others of its policy
// that found no place. A key that finds a place while the overflow row is in use
// starts with what is used there. Reset does not reach the overflow row, which
// belongs to nobody.
//
// # Limits that calls bring
//
// A table counts by at most 65,536 different sets of limits at once. Calls that bring their
// policy with limits of their own (per-key overrides, Envoy's limits of requests) use them up.
// So a policy's calls may bring as many as a quarter of what is left: 11,468 if no other does.
// A call that brings one more gets an error that is weir.ErrInvalid, and nothing is charged.
// Sets whose keys have nothing in use any more make room for others, and some room is left to
// [Table.Set] alone.
//
// # Restarts
//
// A table made with Config.Snapshots can be saved to a file and loaded from it, so
// that a restart does not forgive everyone. See [Table.Save] and [Load].
package memstore
