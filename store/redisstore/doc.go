// Package redisstore is a weir.Limiter whose state is in Redis, so that any number
// of processes share one limit exactly.
//
//	perUser := weir.Must(weir.NewPolicy("per-user", weir.PerMinute(100)))
//	store, err := redisstore.New(ctx, redisstore.Config{
//		Redis: redisstore.Server{
//			Addrs:    []string{"127.0.0.1:6379"},
//			Password: secret.New(os.Getenv("REDIS_PASSWORD")), // package secret; leave it out if there is none
//		},
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
//     on all limits of a policy or on none, whatever the number of processes. As long as
//     the primary keeps its data, nothing is granted beyond the limits.
//   - Time is the server's. The clocks of the processes do not matter. A stored
//     instant never goes back, so a server clock that is set back grants nothing; one
//     that jumps ahead refills the limits by that much time.
//   - Decisions equal package algo's, at the resolution of a microsecond:
//     RetryAfter and ResetAfter are rounded up to one.
//   - No command is retried. A call whose reply is lost may or may not have been executed;
//     its error wraps weir.ErrUnknown, and Stats counts it. All other errors
//     mean that nothing was charged.
//   - A call ends with its context or after Config.Timeout. If the reply arrives after
//     that, the charge is refunded, as far as that grants nothing twice. Debits are not
//     refunded: those units were used.
//   - Every key in Redis expires soon after its state equals that of an unused key.
//   - Reservations live in Redis: another process can settle them. The number of open
//     reservations does not affect the cost of Take, Reserve, Commit and Renew; a refusal may
//     read some of them, to compute RetryAfter exactly. Settling a reservation again, because the
//     reply was lost, returns the same outcome until the reservation's expiry; a key remembers
//     1,000 outcomes.
//   - A call is decided by the limits of its policy, unless a Set has replaced them: the newest
//     change wins, in all processes, and starting a process changes nothing. Config.OnReplaced
//     reports replacements by other processes.
//   - If the value at a key was not written by weir, or was written by a newer version, the
//     error wraps weir.ErrState. Only calls for that key fail or, if the key has the stored
//     limits of a policy, calls for that policy.
//     A batch with such a key charges nothing.
//
// # What it does not promise
//
// Redis replicates asynchronously. A failover may lose the last charges of a key,
// so each failover may grant up to one more burst per key. The same
// holds for a restart without persistence, FLUSHALL, and eviction under
// maxmemory. With the maxmemory-policy noeviction, calls fail instead.
//
// In a cluster a batch over several slots cannot be one script; see Store.Do.
//
// # How it is fast
//
// Concurrent calls of a process are sent together. Calls for one key become one
// execution of a script, which decides them one after the other, so one command
// carries many decisions for a hot key. Calls for different keys share a
// pipeline. A policy of one GCRA limit called "main", the default, has a script of
// its own and takes 12 bytes in Redis.
//
// # Limits
//
// Redis 6.2 or later, or Valkey; alone, with Sentinel, or a cluster. No module is needed. Windows
// are a whole number of microseconds, a
// key has at most 10,000 open reservations, and a reservation without expiry lasts 30
// days after the key's last change.
package redisstore
