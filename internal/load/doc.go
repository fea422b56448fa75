// Package load is the engine of weir load: it calls a target at a given rate,
// whether the target keeps up or not, and measures how long users would have
// waited.
//
// A [Schedule] says how many operations are due when. Workers, one for each
// connection, take the next one from a pacer, call the target (package target) and
// tell what came of it (package measure). The schedule does not wait for the
// workers: an operation that is due while all of them are busy starts late, and
// the time until then is part of its response time. So a target that stalls shows
// in the percentiles, as it would show to its users (an open loop; a closed one
// would just send less).
//
// Whatever is late is made good as soon as a worker is free or, with a burst ratio,
// at that ratio of the rate. Nothing that is due is left out.
package load
