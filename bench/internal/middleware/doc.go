// Package middleware compares weirhttp.Limit with the middleware of other limiters: what each
// adds to a handler of net/http, in time and in allocations.
//
// There is no network and no server: a loop calls the handler with a request and a
// ResponseWriter that are used again, so that what is measured is the middleware.
package middleware
