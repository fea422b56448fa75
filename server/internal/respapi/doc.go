// Package respapi speaks the Redis protocol, RESP2 and RESP3, so that what talks to Redis
// can ask for decisions: redis-cli, redis-benchmark, and the clients of all languages.
//
//	WEIR.CHECK   policy key [cost] [BY name value]… [UNIT name amount]…
//	WEIR.PEEK    the same, and nothing is charged
//	                 → [allowed, limit, remaining, retry_ms, reset_ms]
//	WEIR.RESERVE policy key cost [TTL ms] [BY …] [UNIT …]
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
// WEIR.CHECK is 1 if the request may go on, that of CL.THROTTLE, as in redis-cell, is 0.
// retry_ms is 0 for what was admitted and -1 if waiting cannot help; retry_s is -1 for
// both.
//
// CLASS, which WEIR.CHECK is to have, is refused until there are budgets to give classes
// a meaning.
//
// Besides there is what clients send when they connect: PING, ECHO, HELLO, AUTH, SELECT 0,
// INFO, COMMAND, CLIENT, CLUSTER, QUIT and RESET. Other commands get an error, and the
// connection stays.
//
// # CL.THROTTLE
//
// Its numbers come with the call, and a row keeps those that it was last charged under.
// max_burst + 1 units fit at once, and count units come back every period seconds. With
// the same numbers from call to call decisions are redis-cell's, in exact arithmetic:
// redis-cell cuts period/count to whole nanoseconds. Seconds are rounded up, so waiting
// that long is never too short. A call with other numbers finds the units in use that the
// key had, to the next whole tick: of 5 units that take an hour each, 5 are in use although
// one now takes a second. redis-cell would keep the instant, here 5 hours from now. A call
// that is refused, or only looks, leaves the row under its numbers.
//
// The limit of a reply is max_burst + 1, whoever decides. A quantity above it is refused for
// ever, with a retry_s of -1; of others a call takes at most weir.MaxCost, which is what a
// shared store can carry. Decisions are reported under the policy cl.throttle.
//
// # Who may call
//
// Where clients are configured, a connection begins with AUTH or HELLO … AUTH, with the
// client's name and token, or with the token alone (user "default"), or it showed a
// certificate. A reload that takes a token back ends what the connection may do. Keys of
// CL.THROTTLE and reservations are the client's own.
//
// # Limits
//
// A command has at most 64 arguments, those that decide 16, of 64 KiB each and 128 KiB
// together. Who sends half a command gets 10 seconds for the rest; who does not read the
// replies is cut off after 15. Replies of one pipeline are written together, at most 1,024
// or 64 KiB of them, and nothing is read meanwhile, so a connection costs a goroutine and
// at most some 400 KiB, usually 4.
package respapi
