// Package budget stays inside a provider's quota: how much an API account may use per second, day and month,
// what each call costs, and who may use it first.
//
//	account, err := budget.New(store, budget.Config{Name: "alchemy-main", Preset: "alchemy-free"})
//	client := &http.Client{Transport: &budget.Transport{Account: account, Class: "realtime"}}
//
// From now on every request of that client waits until the account has room for it. Another process that
// has an account of the same name over the same Redis, with the class "backfill", uses what is left, and no
// more: no request of either is refused by the provider.
//
// To limit callers of your own service, use package guard or weirhttp; to start work at an even rate,
// package pacer. This package is for what somebody else limits.
//
// # Accounts
//
// An [Account] is what the provider limits: several keys and URLs may belong to one, and all of them share its
// [Config]. It has several horizons, such as ten seconds and a month, in one or more units, such as compute
// units or tokens; a call is charged to all of them or to none. A limit in shadow is soft: beyond it calls are
// admitted with a warning. [Prepaid] amounts do not come back. The store decides how many processes share an
// account: a memstore.Table is one process, a redisstore.Store a fleet.
//
// Whether several accounts with one provider may be combined is for its terms of service to say.
//
// # Costs
//
// A [Table] says what each method costs, in each unit, and by which rules the vendor counts batches and failed
// requests. The tables that come with the package have a date and a source; [Table.With] changes them. A method
// that is not listed has a default or is refused, and is counted: it is never free by accident. A [Cost] is a
// number of units, or the cost of a method or a batch by the account's table.
//
// # Classes
//
// Classes share the limit with the shortest period. Each has a guaranteed part, and what a class leaves idle
// the others use. When it returns, its own part is there at once. If another limit refuses what a class has
// there, such as a window that is full of what others have borrowed, nobody borrows until it has room. See
// [algo.Lending] for the rules, and Class.NoBorrow for hard partitions.
//
// # Charging
//
// A [Controller] charges for one class. [Controller.Try] decides now; [Controller.WaitForBudget] waits, in the
// order of arrival, as long as the limits say; [Controller.Reserve] also holds the cost, for work whose cost is
// known only afterwards, and [Reservation.Settle] gives back the rest at once. Waiting fails at once if the
// context's deadline comes too early (*weir.DeniedError) or if the cost can never fit ([ErrTooCostly]).
// [Controller.Quote] says when a cost would be admitted: execution gets that instant if nothing else happens. While the
// account is paused, and behind callers that wait, it says less.
//
// A [Transport] does all of this for an http.Client, so that each physical call is charged once, retries and
// redirects included. [Client] wraps clients of JSON-RPC over other connections.
//
// # Thresholds
//
// At 80, 90 and 100 % of utilisation, averaged over a second, the [Level] of an account changes to Warning, Paused
// and Critical; it is Normal again below 75 %. [Thresholds] has other marks. While it is Paused, classes borrow
// nothing, and [Controller.ShouldPause] asks work that can wait to do so.
//
// # The provider's view
//
// What responses say about limits can only reduce what an account may use ([Account.Learn]), and a Retry-After
// lets it wait ([Account.Cool]). The difference is counted as drift: it shows that somebody else uses the key.
//
// # When a provider refuses
//
// The status of a refusal does not say what it means. OpenAI answers 429 to too many requests in a minute,
// to an account without money, and to traffic that grows too fast; Infura answers 402 to a quota that is back at
// midnight. [Classify] reads the status, the headers and the error in the body, and tells four classes apart:
//
//   - RateLimited: let the account wait. Another one can be used at once.
//   - QuotaExhausted: the same, until a time that may be days away.
//   - AccessDenied: money or credentials. Nothing helps until an operator acts.
//   - Overloaded: let all accounts of the provider wait. Another one is the wrong reaction.
//
// It goes by codes, and where a vendor has one code for several errors also by how its text begins; words
// inside a text decide nothing. So "context deadline exceeded" and block 4,290,000 are no refusals, and neither is
// a limit of the sender of a transaction or of the results of a query.
//
// A [Transport] and a [Client] do that by themselves, and [Controller.RecordRefusal] does it for programs that send
// their requests otherwise. [Usage] has the refusals that were counted, and whether access is denied.
//
// # Guarantees
//
// In any interval Δ at most burst + rate × Δ units of each limit are granted, by all processes and classes
// together, and at most the rate in any period of a weir.SlidingLog. A reservation that is not settled in time, since
// its process has crashed, counts as used. If the store is unavailable, each process goes on with its share of the
// budget (Config.OnError), given a store behind package tiered. [Usage] has a [Ledger] of what this process has
// charged, which closes to the unit.
package budget
