package adminapi

import (
	"context"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
)

// enforces says whether a refusal would be one for key: whether the rollout has reached it,
// and not all limits are in shadow. It asks a guard that decides by the same rules, and
// whose limiter refuses everything: what is admitted all the same is not enforced.
func enforces(rules *guard.Rules, v *guard.Variant, key string) (bool, error) {
	g, err := guard.New(refuser{}, rules)
	if err != nil {
		return false, err
	}
	q := guard.Query{Key: key}
	for _, name := range missing(v, &q) {
		q.Keys = append(q.Keys, guard.Attribute{Name: name})
	}
	out, err := g.Peek(context.Background(), v.Rule(), &q)
	return !out.Allowed, err
}

// refuser is a limiter that refuses everything.
type refuser struct{}

func (refuser) Take(context.Context, *weir.Policy, string, int64) (weir.Decision, error) {
	return refusal, nil
}

func (refuser) Do(_ context.Context, b *weir.Batch) error {
	if err := b.Check(); err != nil {
		return err
	}
	for i := range b.Decisions {
		b.Decisions[i] = refusal
	}
	return nil
}

func (refuser) Set(context.Context, *weir.Policy, *weir.Policy) error { return nil }

var refusal = weir.Decision{Reason: weir.Exhausted, RetryAfter: weir.Never}
