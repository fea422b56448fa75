// Package storetest is the suite that every store must pass, that is, every
// implementation of [weir.Limiter] that keeps the state of keys.
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, storetest.Store{
//			Open: func(t testing.TB, o storetest.Options) weir.Limiter {
//				table, err := memstore.New(memstore.Config{MaxKeys: o.MaxKeys, MaxHolds: o.MaxHolds, Now: o.Clock.Now})
//				if err != nil {
//					t.Fatal(err)
//				}
//				return table
//			},
//		})
//	}
//
// # What it demands
//
// That decisions are those of SEMANTICS.md, to the last field. Most tests say so
// in numbers that were worked out by hand, the vectors of algo/testdata in those
// that slow models gave, and the random test in those of [algo.Ledger]: it
// plays random policies, charges, batches, reservations, overrides, Sets and
// clock steps on the store and on a model that has one exact ledger for every
// key, and compares every answer. A failing case is shrunk and printed step by
// step; go test -run … -rapid.failfile=… plays it again.
//
// That time is Options.Clock and nothing else. A store on a server is given its
// now by these tests, and must not let the server forget keys by a clock of its
// own meanwhile: virtual hours pass in real microseconds, and real milliseconds
// while the virtual clock stands.
//
// That a batch reads the clock once, keeps none of the caller's strings and
// slices, and either is an error or does all that its operation says.
//
// # What it does not demand
//
// A Demand is something that a store may lack, for a reason: Store.Without names
// it, and go test -v shows the reason where a test is skipped. There is no other
// way to be excused.
//
// Time finer than the store's. With a Resolution of a microsecond every instant is
// a whole microsecond, and durations are expected rounded up to one. Where the
// limits of a policy change, such a store rounds units as it must, so the random
// test keeps to numbers that need no rounding; see drawer.rateAndBurst.
//
// What SEMANTICS.md leaves open: which of several errors of a batch is returned,
// what Reset makes of a limit that did not start full, what an override keeps of
// a limit that it lacks, and where a Set leads that goes from a policy that was
// never in force.
//
// Speed, memory, eviction in a certain order, and what several processes see of
// one store. Write tests of these beside the store.
//
// # What it costs
//
// About 20,000 calls and 250 stores opened: two seconds where a call takes 100 µs.
// WEIR_TEST=all makes the random test a hundred times as long and loops ten times.
package storetest
