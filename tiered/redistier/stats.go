package redistier

import "sync/atomic"

// Stats is what a Bus has done since it was made.
type Stats struct {
	// Published is how many words were sent, and taken by the server.
	Published int64

	// Heard is how many words of other nodes have come, however many listeners
	// there are.
	Heard int64

	// Lost is how many words were given up here: because they could not be sent or
	// encoded, because this clock could not be compared with Redis's, or because a
	// listener was too slow.
	Lost int64

	// Damaged is how many messages came that were none, or of another version.
	Damaged int64

	// Subscriptions is how often the subscription has begun: 1 if it was never lost.
	Subscriptions int64

	// FailedHeartbeats is how many heartbeats the server has not answered.
	FailedHeartbeats int64
}

type counts struct {
	published, heard, lost, damaged, subscriptions, failed atomic.Int64
}

// Stats returns what the Bus has done so far.
func (b *Bus) Stats() Stats {
	c := &b.counts
	return Stats{
		Published: c.published.Load(), Heard: c.heard.Load(), Lost: c.lost.Load(), Damaged: c.damaged.Load(),
		Subscriptions: c.subscriptions.Load(), FailedHeartbeats: c.failed.Load(),
	}
}
