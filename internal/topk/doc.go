// Package topk finds who is counted most among more names than fit in memory: for
// example the keys that are refused most, of a million that come and go.
//
//	limited := topk.New(100)
//	limited.Add("203.0.113.9", 1) // on each refusal
//	limited.Decay(now)            // once a minute
//	worst := limited.Top(10)
//
// # What it promises
//
// A [Sketch] of k counters watches a stream of labels with weights, N units in all.
// For each label it lists,
//
//	Count − Error  ≤  true count  ≤  Count,     Error ≤ N/k
//
// and a label with more than N/k units is always in the list. With k = 100, whoever
// takes more than one percent of the refusals is found, whatever else is sent. Which
// labels of less than N/k are listed is chance.
//
// # What it costs
//
// At most k labels of at most [MaxLabel] bytes and some 120 bytes beside each: 63 kB
// for k = 100, never more. Adding to a label that is known takes a lock and no memory
// (40 ns with k = 100); a new one in a full sketch also copies its text (190 ns).
//
// # The formula
//
// Space-Saving keeps k pairs (count, error). With m the least count, Add(x, n) does
//
//	x is known:       count[x] += n
//	there is room:    count[x]  = n,      error[x] = 0
//	else y, the one with count m, goes:
//	                  count[x]  = m + n,  error[x] = m
//
// A label that is not listed has at most m units: either it never came, or it had at
// most m when it went. So m + n is no less than x has, and at most m of it may belong
// to others. Each unit is in exactly one count, so the counts add up to N, and the least
// of k is at most N/k.
//
// # For example
//
// k = 2, and the stream is a a a b c:
//
//	a a a   a 3            3 units of a
//	b       a 3, b 1       full
//	c       a 3, c 2 (1)   b had the least, 1; c counts 1+1, of which 1 may be others'
//
// Top says that c has 1 or 2 units: it has 1. N = 5, and no error is above 5/2.
//
// # Fading
//
// [Sketch.Decay] halves every count for each [HalfLife] that has passed, so that the
// list says who is limited now. A unit that is h half lives old counts 2^−h; one half
// life after an attack has ended its count is a half, after seven it is below one
// percent. Halves are rounded down, for the true count as well:
//
//	count' = ⌊count/2⌋,   error' = count' − ⌊(count − error)/2⌋
//
// Both bounds survive that. Of Error ≤ N/k, N being what the counts add up to, rounding
// can take one unit: after a halving it is Error ≤ N/k + 1. A count of nothing leaves
// the list. Whatever is not listed had no more than that, so it comes to nothing too, and
// there is room again for new labels without an error.
//
// # Edges
//
// Weights of zero and less are ignored. Counts stop at the greatest int64. Labels are
// cut to MaxLabel bytes, at a character's start if they are text; those that begin alike
// that far are one. A clock that goes back fades nothing until it has caught up. Units
// are as old as the last Decay before them, so it should be called several times in a
// half life; a call after a long silence fades what came yesterday and what came just
// now alike.
//
// For counts of a few labels that are known beforehand use a counter for each; labels of
// strangers never belong in metrics, whose memory they would fill.
//
// # Source
//
// A. Metwally, D. Agrawal, A. El Abbadi: Efficient Computation of Frequent and Top-k
// Elements in Data Streams, ICDT 2005. The order is kept in a heap here, because weights
// are not all one.
package topk
