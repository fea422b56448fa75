// Package redisstore is a weir.Limiter whose state is in Redis, so that any number
// of processes share one limit exactly.
//
//	store, err := redisstore.New(ctx, redisstore.Config{
//		Redis: redisstore.Server{Addrs: []string{"127.0.0.1:6379"}},
//	})
//	defer store.Close()
//	d, err := store.Take(ctx, perUser, "alice", 1)
//
// [Server] has the passwords of Redis and Sentinel, as package secret's type that prints as
// ***, TLS, and a hook for how connections are made.
//
// Use store/memstore where one process decides alone: it answers in nanoseconds, and
// this one in the time of a round trip.
//
// # Guarantees
//
//   - A decision is one script on the server: deciding and charging are one step,
//     on all limits of a policy or on none, whatever the number of processes. On a
//     live primary nothing is granted beyond the limits.
//   - Time is the server's. Clocks of the processes may differ as they like. A
//     stored instant never goes back, so a server whose clock does grants nothing;
//     one whose clock jumps ahead forgives what that much time would.
//   - Decisions equal package algo's, at the resolution of a microsecond:
//     RetryAfter and ResetAfter are rounded up to one.
//   - Nothing is sent twice. A call whose answer is lost may have been carried out
//     or not; the error says so (weir.ErrUnknown), and Stats counts it. All other errors
//     mean that nothing was charged.
//   - A call ends with its context or after Config.Timeout. A caller who leaves
//     before the answer gets back what he was charged, as far as that grants nothing
//     twice; but what he debited was used, and stays.
//   - Every key in Redis expires soon after it is as if unused.
//   - Reservations live in Redis: another process can settle them. How many a key has open
//     does not matter to Take, Reserve, Commit and Renew; a refusal may look at some of
//     them, to tell exactly when it ends. Who settles again, because the answer was lost, gets the same
//     outcome until the reservation's expiry; a key remembers 1,000.
//   - Limits are those that callers bring, unless a Set has replaced them: the newest change wins, in
//     all processes, and a process that starts changes nothing. Config.OnReplaced reports
//     replacements by others.
//   - An error about what lies at one key, because it is not weir's or of a later version, has
//     weir.ErrState in it. It concerns those who ask for that key, or for the policy whose
//     record it is, and nobody else. A batch with such a key charges nothing.
//
// # What it does not promise
//
// Redis replicates behind its answers. After a failover a key may have forgotten
// what it was charged last, so each failover may grant up to one more burst per key. The same
// holds for a restart without persistence, FLUSHALL, and eviction under
// maxmemory: give Redis a policy of noeviction, and calls fail instead.
//
// In a cluster a batch over several slots cannot be one script; see Store.Do.
//
// # How it is fast
//
// Calls that meet in a process are sent together. Those for one key become one call
// of a script that answers each as if they had come one after the other, so a hot
// key is decided many times per command. Those for different keys share a
// pipeline. A policy of one GCRA limit called "main", the default, has a script of
// its own and takes 12 bytes in Redis.
//
// # Limits
//
// Redis 6.2 or later, or Valkey; alone, with Sentinel, or a cluster. No module is needed. Windows
// are a whole number of microseconds, a sliding log has at most 4,096 units, a
// key at most 10,000 open reservations, and a reservation without expiry lasts 30
// days after the key's last change.
package redisstore
