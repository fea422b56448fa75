// Package redisconn connects weir to Redis, for every package that keeps something there.
//
//	c, err := redisconn.Parse("redis://:password@127.0.0.1:6379/0")
//	conn, err := redisconn.Open(ctx, c)
//	defer conn.Close()
//	conn.Client.Do(ctx, …)
//
// It needs Redis 6.2 or later, or Valkey: one server, Sentinel, or Cluster. [Open] detects
// which, and returns an error that explains why it cannot connect. The package does not wrap
// the client: commands go to [Conn.Client], a rueidis.Client with the settings that decisions
// need.
//
// # What Client promises
//
// No command is retried. A decision charges, so a client that repeats a command after a
// lost reply would charge twice; [IsUnknown] distinguishes errors after which a command may
// have been executed from those after which it was not. Only MOVED and ASK of a Cluster are
// followed, since the node that replies so has executed nothing. Retrying EVALSHA after
// NOSCRIPT is up to the caller.
//
// A late reply affects only its own command: the connection and the other commands on it
// continue. (rueidis is configured to pipeline always; otherwise it would close the connection,
// and the other commands would fail with the same error.)
//
// A connection that has died silently is closed when nothing was received for
// [Config.Timeout] after something was sent. Commands that wait on it get an error then. An
// idle connection is checked by a ping every 30 seconds.
//
// # What Client does not promise
//
// Commands are spread over [Config.Conns] connections at random, so two of them are in
// order only if the second is sent after the reply to the first.
//
// The context of a command ends the wait for its reply, with two exceptions. A command that
// needs a connection which another command is dialing waits for that, up to twice
// [Config.DialTimeout]. And a command on a connection with 1,024 pending replies, including
// those of cancelled commands, waits until one arrives or the connection
// is closed. Where a deadline must hold, send the command in a goroutine of its own,
// bound the number of those in flight, and do not wait for it.
//
// A connection is made with the context of the command that needs it. If its deadline is
// too short, the command fails, and so will the next: with TLS it takes four round trips
// until a command can be sent. So contexts of commands should allow for DialTimeout.
//
// # Changes
//
// [Conn.Watch] calls back when any client changes a key with a given prefix. It is a hint, for
// caches: changes may be reported late, together, twice, or as "anything may have changed".
package redisconn
