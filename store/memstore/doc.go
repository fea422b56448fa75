// Package memstore keeps the state of many keys in the memory of one process.
//
//	table, err := memstore.New(memstore.Config{MaxKeys: 10_000})
//	decision, err := table.Take(ctx, policy, "alice", 1)
//
// A Table is a [weir.Limiter]. It is bounded: when it is full, a new key takes
// the place of one that has nothing in use, and if there is none, it shares one
// strict overflow row per policy with all others that found no place. A key with
// units in use is never dropped, so filling the table with new keys cannot free
// one that is refused. A key that finds a place while the overflow row is in use
// starts with what is used there. Reset does not reach the overflow row, which
// belongs to nobody. There is one such row for each policy name.
//
// One mutex guards the table and every call takes it. That suits a first daemon
// and tests; for one limit without keys use [weir.Single].
package memstore
