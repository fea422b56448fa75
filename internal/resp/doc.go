// Package resp reads commands and writes replies in the Redis protocol, RESP2 and RESP3,
// for servers.
//
//	r := resp.NewReader(conn, resp.Limits{})
//	for {
//		args, err := r.Read()
//		if err != nil {
//			return err
//		}
//		conn.Write(resp.AppendBulk(nil, args[0]))
//	}
//
// A server that answers pipelines with one write asks Next for what was received already
// and calls Fill when that is used up.
//
// # What it promises
//
//   - A command costs no allocation: arguments are parts of the Reader's buffer, and
//     replies are appended to a slice of the caller's.
//   - Every byte is looked at once, however the input is split.
//   - A length is checked before anything is allocated for it, and the buffer grows only
//     with bytes that were received, up to Limits.
//   - Whatever breaks the protocol is a *ProtocolError, in the words that Redis uses.
//     After one the stream has no meaning any more, and the connection is to be closed.
//   - A text that somebody else sent cannot end a line of a reply.
//
// # Where it is stricter than Redis
//
// A line of a multibulk command must end in CR LF, and so must a bulk: Redis skips two
// bytes, whatever they are. A negative count of arguments is an error, not an empty
// command.
//
// For clients use rueidis or go-redis.
package resp
