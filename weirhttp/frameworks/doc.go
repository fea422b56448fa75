// Package frameworks has tests of weirhttp.Limit with routers other than net/http's own. It is a
// module of its own, so that nobody who wants a limiter downloads them.
package frameworks
