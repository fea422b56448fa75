// Package redisconn connects weir to Redis, for every package that keeps something there.
//
//	c, err := redisconn.Parse("redis://:password@127.0.0.1:6379/0")
//	conn, err := redisconn.Open(ctx, c)
//	defer conn.Close()
//	conn.Client.Do(ctx, …)
//
// It needs Redis 6.2 or later, or Valkey: one server, Sentinel, or Cluster. [Open] finds
// out which, and says what is wrong where something is. It is no layer over the client:
// commands go to [Conn.Client], a rueidis.Client with the settings that decisions need.
//
// # What Client promises
//
// Nothing is sent twice. A decision charges, so a client that repeats a command after a
// lost reply would charge twice; [IsUnknown] tells errors after which a command may have
// been executed from those after which it has not. Only MOVED and ASK of a Cluster are
// followed, since the node that says so has executed nothing, and EVALSHA after NOSCRIPT
// is the caller's own affair.
//
// A reply that comes too late costs its caller only: the connection and the commands of
// others on it stay. (rueidis would close it, and give the others the error of the one,
// if it were not told to pipeline always.)
//
// A connection that has died without a word is closed when nothing has come for
// [Config.Timeout] after something was sent. Whoever waits on it gets an error then. One that
// nobody uses is found by a ping, every 30 seconds.
//
// # What Client does not promise
//
// Commands are spread over [Config.Conns] connections at random, so two of them are in
// order only if the second is sent after the reply to the first.
//
// The context of a command ends the wait for its reply, with two exceptions. Who needs a
// connection that somebody else is making waits for that, up to twice
// [Config.DialTimeout]; and who finds 1,024 commands on a connection without a reply, also
// those that nobody waits for any more, waits until one is answered or the connection
// is given up. Where a deadline must hold, let a goroutine of its own send the command,
// bound the number of those in flight, and do not wait for it.
//
// A connection is made with the context of the command that needs it. If its deadline is
// too short, the command fails, and so will the next: with TLS it takes four round trips
// until a command can be sent. So contexts of commands should allow for DialTimeout.
//
// # Changes
//
// [Conn.Watch] calls back when anybody changes a key with a given prefix. It is a hint, for
// caches: changes may be told late, together, twice, or as "anything may have changed".
package redisconn
