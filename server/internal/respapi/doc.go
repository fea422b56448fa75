// Package respapi serves the Redis protocol, RESP2 and RESP3, so that Redis clients can request
// decisions: redis-cli, redis-benchmark, and the client libraries of all languages.
//
//	WEIR.CHECK   policy key [cost] [CLASS class] [BY name value]… [UNIT name amount]… [METHOD name]…
//	WEIR.PEEK    the same, and nothing is charged
//	                 → [allowed, limit, remaining, retry_ms, reset_ms]
//	WEIR.RESERVE policy key [cost] [CLASS class] [TTL ms] [MAXWAIT ms] [BY …] [UNIT …] [METHOD …]
//	                 → [id or nil, allowed, limit, remaining, retry_ms, reset_ms]
//	WEIR.COMMIT  id [used] [UNIT name amount]…
//	WEIR.CANCEL  id
//	                 → [refunded, overrun, late]
//	WEIR.RENEW   id [ttl_ms]
//	                 → [renewed, expires_in_ms]
//	CL.THROTTLE  key max_burst count period [quantity]
//	                 → [limited, limit, remaining, retry_s, reset_s]
//
// All of them reply with integers, but for the id. Mind the polarity: the first integer of
// WEIR.CHECK is 1 if the request is admitted, that of CL.THROTTLE, as in redis-cell, is 0.
// retry_ms is 0 for admitted requests and -1 if waiting cannot help; retry_s is -1 for
// both.
//
// A WEIR.RESERVE with MAXWAIT holds up the later commands of its connection, as Redis's blocking commands
// do. Earlier replies are written before. A connection that is closed meanwhile is noticed afterwards, so
// that a reservation which nobody gets expires after its TTL.
//
// CLASS is the class of work under a policy with classes.
//
// A policy that is a budget has one key, which is written as -. Its table says what a METHOD costs; several
// are a batch of calls. Then there is no cost.
//
// The commands that clients send when they connect are supported, too: PING, ECHO, HELLO, AUTH,
// SELECT 0, INFO, COMMAND, CLIENT, CLUSTER, QUIT and RESET. Other commands get an error reply,
// and the connection stays open.
//
// # CL.THROTTLE
//
// The limit parameters are arguments of the call, and a row keeps those of its last charge.
// max_burst + 1 units are available at once, and count units are replenished every period
// seconds. As long as the parameters stay the same, decisions are those of redis-cell, in exact
// arithmetic: redis-cell truncates period/count to whole nanoseconds. Seconds are rounded up, so
// waiting that long is never too short. When a call has other parameters, the key's units in use
// stay the same, rounded up to the next whole tick: if 5 units that take an hour each are in use,
// 5 are in use although each now takes a second. redis-cell would keep the reset time, here 5
// hours from now. A call that is refused, or has a quantity of 0, leaves the row's parameters
// unchanged.
//
// The limit of a reply is always max_burst + 1. A quantity above it is always refused, with a
// retry_s of -1; other quantities are at most weir.MaxCost, the maximum of a shared store.
// Decisions are reported under the policy cl.throttle.
//
// # Authentication
//
// If clients are configured, a connection must authenticate: with AUTH or HELLO … AUTH, with the
// client's name and token, or with the token alone (user "default"), or with a TLS certificate.
// A reload that revokes the token takes effect on open connections. Keys of CL.THROTTLE and
// reservations belong to the client.
//
// # Limits
//
// A command has at most 64 arguments, those that decide 16, of 64 KiB each and 128 KiB
// together. The rest of an incomplete command must arrive within 10 seconds; a client that does
// not read its replies is disconnected after 15. Replies of one pipeline are written together, at
// most 1,024 or 64 KiB of them, and nothing is read meanwhile, so a connection needs a goroutine
// and at most about 400 KiB, usually 4.
package respapi
