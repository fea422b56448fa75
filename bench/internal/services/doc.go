// Package services compares daemons as their callers see them: requests per second over
// gRPC and the Redis protocol, how long one takes, and what it costs the server.
//
// weir, envoyproxy/ratelimit and servers that decide nothing are processes of their own, as
// is the Redis that some of them ask. A contender is a server and a protocol; for all that
// speak one protocol the client is the same code, in this process. They take turns.
package services
