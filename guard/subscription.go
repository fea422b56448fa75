package guard

import (
	"context"

	"github.com/weirlimit/weir"
)

// Subscription is an open stream of a subject. It ends with its context, or with Close.
type Subscription struct{}

// SubscriptionDecision is the decision on a new subscription, or on more items.
type SubscriptionDecision struct {
	weir.Decision

	// Limit is the limit that refused: "subscriptions", "items_each", "items_total", "create" or
	// "modify"; "" if none did.
	Limit string
}

// Subscribe opens a subscription with a number of items, all or nothing. It ends when ctx ends. The
// subscription is nil if it was refused. A Guard without Config.Subscriptions refuses nothing.
func (g *Guard) Subscribe(ctx context.Context, s Subject, items int64) (*Subscription, SubscriptionDecision, error) {
	return nil, SubscriptionDecision{}, nil
}

// Add adds items, all or nothing.
func (s *Subscription) Add(ctx context.Context, items int64) (SubscriptionDecision, error) {
	return SubscriptionDecision{}, nil
}

// Remove removes up to so many items and returns how many. It is never refused.
func (s *Subscription) Remove(items int64) int64 { return 0 }

// Items returns the number of items.
func (s *Subscription) Items() int64 { return 0 }

// Context returns the context of the subscription. It ends with that of Subscribe, with Close, and
// with cause ErrSubscriptionLost if the lease expired during an outage and could not be renewed.
func (s *Subscription) Context() context.Context { return nil }

// Close ends the subscription and releases what it holds. It may be called more than once.
func (s *Subscription) Close() {}
