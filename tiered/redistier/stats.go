package redistier

import "sync/atomic"

// Stats is what a Bus has done since it was made.
type Stats struct {
	// Published is the number of messages that the server accepted.
	Published int64

	// Received is the number of messages from other nodes. Each counts once, however many
	// listeners there are.
	Received int64

	// Lost is the number of messages that this node dropped: because they could not be
	// encoded or sent, because Redis's clock was unknown, or because a listener was too
	// slow.
	Lost int64

	// Damaged is the number of received payloads that are malformed or of another version.
	Damaged int64

	// Subscriptions is the number of times the subscription began: 1 if it was never lost.
	Subscriptions int64

	// FailedHeartbeats is the number of heartbeats that the server did not answer.
	FailedHeartbeats int64
}

type counts struct {
	published, received, lost, damaged, subscriptions, failed atomic.Int64
}

// Stats returns what the Bus has done so far.
func (b *Bus) Stats() Stats {
	c := &b.counts
	return Stats{
		Published: c.published.Load(), Received: c.received.Load(), Lost: c.lost.Load(), Damaged: c.damaged.Load(),
		Subscriptions: c.subscriptions.Load(), FailedHeartbeats: c.failed.Load(),
	}
}
