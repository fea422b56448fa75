// Package queue lets callers wait for their turn at a key, first come, first served, over
// any weir.Limiter.
//
//	waiting, err := queue.New(table, queue.Config{})
//	d, err := waiting.Wait(ctx, policy, "example.org", 1)
//	if err != nil { … } // refused, or the context has ended: do not proceed
//
// Queue.Reserve waits for a reservation, of one or several charges, and Queue.WaitAll for any
// charges that are made together.
//
// There are two implementations of waiting. weir.Single.Wait is for one limit without keys in
// one process: one timer serves all who wait, and turns are computed exactly. A Queue is for
// many keys, and for limiters that other processes share; memstore.Keyed has one built in.
// Neither is for work that is to start on a schedule: that is package pacer.
package queue
