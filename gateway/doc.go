// Package gateway serves pools of upstream endpoints as a reverse proxy: programs send their requests to one address
// and need no keys, limits or retries of their own.
//
//	route, err := gateway.New(store, gateway.Config{Pool: upstream.Config{Name: "ethereum", JSONRPC: true, Endpoints: endpoints}})
//	go route.Run(ctx) // probes
//	http.Handle("/gw/ethereum", http.StripPrefix("/gw/ethereum", route))
//
// To send requests from inside a program, use the pool itself: package upstream. To limit requests that come in, use
// package weirhttp.
//
// # Requests
//
// A route takes calls of JSON-RPC by POST, and batches of up to 100. The body must be JSON that can be read in one way
// only, and not be compressed, the header Content-Type must be application/json, and the path must end with the
// route. What is wrong with a request is answered with an error of JSON-RPC; nothing is sent and nothing is charged.
//
// A batch is charged for all of its calls together, or refused. It is never split. A request is sent to another
// endpoint after a failure only if all of its methods may be executed twice, see upstream.IsRepeatable and
// Config.Repeatable.
//
// Endpoints get the body, and of the headers only traceparent. Credentials, cookies, the path, the query and whatever
// else a caller has sent stay here. Instead come the URL and the headers that are configured for the endpoint.
//
// # Responses
//
// A response is passed on as it comes, with its status, and the headers Cache-Control, Content-Type,
// Content-Encoding, RateLimit, RateLimit-Policy and Retry-After, the last three only if they are well-formed. Statuses but 200, 202,
// 204 and those of errors become 502; redirects are not followed. The route adds
//
//	Weir-Upstream: alchemy-1                         the endpoint that has answered
//	Weir-Limit: alchemy-1.budget                     the tightest limit, or the one that refuses
//	RateLimit: "alchemy-1.budget";r=4310             what is left of it
//	RateLimit-Policy: "alchemy-1.budget";q=5000;w=10
//
// Errors of the route have these statuses, and as codes of JSON-RPC:
//
//	429  -32005  all endpoints are at their limits; Retry-After and the error's data say when to come back
//	400  -32005  the request costs more than any endpoint ever has
//	502  -32002  no endpoint is available, or the one that was asked has failed
//	504  -32002  the endpoint has not answered in time
//	503  -32002  the limits cannot be checked, or the long bodies of all requests have 64 MiB already, or 32 MiB those of the client
//	403  -32601  no endpoint is configured to take the method
//	400  -32700  the body is not JSON
//	400  -32600  the body is no request; also with 404, 405, 413 and 415
//	400  -32602  a batch uses filters of several endpoints, or other calls that the filter's endpoint does not take
//	200  -32000  the filter does not exist
//
// An answer of an endpoint that refuses or fails is passed on with its status, such as 429, if the request may not be sent again
// or no other endpoint has taken it. Weir-Upstream says whose it is.
//
// # Filters
//
// The filters of eth_newFilter, eth_newBlockFilter and eth_newPendingTransactionFilter exist at the endpoint that has
// made them. Callers get ids that say which one that is, and calls with such an id go there, through whatever process:
// there is no state. The other calls of a batch go there, too: it is refused if the endpoint does not take them all. A filter of an
// endpoint that takes no such calls, as it is not selectable or does not allow them, does not exist. Ids that are not hexadecimal, which no known server gives, are passed as they are, and their calls
// may go anywhere.
//
// # Guarantees
//
//   - URLs and headers of endpoints are in no header, error, log or statistic of the route. In what endpoints send, in
//     headers and in bodies of up to 64 KiB (of batches 1 MiB), the parts of them that have 8 characters or more are replaced
//     by ***. Words in paths and queries are not: up to 16 lower-case letters, - and _, as in go-ethereum. So a key that
//     people choose needs a digit, or more characters. Neither are the values of Accept, Accept-Encoding, Accept-Language,
//     Content-Type and User-Agent. Errors with a status of 400 and above that are longer, or not JSON, are replaced as a whole. The one log that
//     this package has no hold on is net/http's, which quotes what a server sends unasked: see log.SetOutput.
//   - Nothing but the ids of filters changes in requests and responses; the ids of calls, their order and numbers stay as
//     they are written.
//   - Replace drops no request. What was used stays used, and an endpoint that is removed ends the calls that it has.
//   - Pages of other origins than Config.Origins can neither read responses nor have requests sent.
//
// # Limits
//
// A request is read into memory, up to MaxBody, before it is sent. What has arrived of requests of more than 64 KiB may have
// 64 MiB together, and half of that if they are of one client (see upstream.WithClient): others are refused. Responses are read up to 64 KiB, those to batches up to 1 MiB, or up to 4 MiB if they have ids of filters in them. How long callers
// may take to send a request is up to the http.Server. There are no WebSockets, so no subscriptions.
package gateway
