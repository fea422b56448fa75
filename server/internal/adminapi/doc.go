// Package adminapi serves the operators' HTTP API.
//
//	GET    /admin/v1/config         what is configured, and where it comes from
//	GET    /admin/v1/policies       the policies that are in force
//	GET    /admin/v1/keys           the limit status of a key
//	POST   /admin/v1/keys/reset     reset the usage of a key
//	PUT    /admin/v1/keys/override  set other limits for a key
//	DELETE /admin/v1/keys/override  remove them
//	GET    /admin/v1/overrides      all overrides that operators have set
//	GET    /admin/v1/stats          statistics, and the keys with the most refusals
//	GET    /admin/v1/events         decisions as they are made
//	GET    /admin/v1/budgets        what is used of the budgets; /NAME for one of them
//	POST   /admin/v1/budgets/NAME/resume              end its cooldown
//	GET    /admin/v1/upstreams      the endpoints of routes; /NAME for one of them
//	POST   /admin/v1/upstreams/ROUTE/ALIAS/resume     let an endpoint be tried again
//	GET    /admin/v1/guard          counts of the guard, who is refused most, bursts that were needed
//	GET    /admin/v1/guard/subject  the limits and the penalty of a subject
//	POST   /admin/v1/guard/pardon   end the penalty of a subject
//
// docs/admin.md has an example of each.
//
// # Guarantees
//
//   - A call that looks changes nothing, and needs the scope read. A call that changes
//     something needs the scope write.
//   - Every change, and every try by an operator who lacks the scope, is one line of the
//     audit log. Failed authentication is one line a second at most.
//   - A body means one thing or is refused: unknown fields, fields twice, text after the
//     object and broken Unicode are errors that say where. So are unknown parameters.
//   - Whatever is not an answer is a problem (RFC 9457). No cache may store either.
//   - Keys are in answers and in the audit log, quoted; never in headers.
//
// # Limits
//
// A body is at most 16 KiB. Keys that are not UTF-8, which other protocols allow, appear
// with replacement characters. Pages of other origins are kept out by package server, not
// here.
package adminapi
