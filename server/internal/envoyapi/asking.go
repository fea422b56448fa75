package envoyapi

import (
	"fmt"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirlimit/weir"
)

// asking is one request while it is being decided.
type asking struct {
	domain   *domain
	list     []question // one per descriptor
	admitted bool
}

// question is one descriptor.
type question struct {
	limit  *limit // nil if none is for it
	key    string
	hits   int64
	refund bool // hits are given back

	over      bool
	remaining int64
	reset     time.Duration
}

// counts says whether a limiter is asked.
func (q *question) counts() bool { return q.limit != nil && q.limit.policy != nil }

func (q *question) mode() mode {
	if q.limit == nil {
		return ordinary
	}
	return q.limit.mode
}

// read makes questions of a request.
func (s *Service) read(d *domain, r *rlsv3.RateLimitRequest) (*asking, error) {
	a := &asking{domain: d, list: make([]question, len(r.GetDescriptors()))}
	for i, descriptor := range r.GetDescriptors() {
		if err := s.question(a, &a.list[i], r, descriptor); err != nil {
			return nil, fmt.Errorf("descriptors[%d]: %w", i, err)
		}
	}
	a.replace()
	for i := range a.list {
		if q := &a.list[i]; q.counts() {
			q.key = keyOf(q.limit.apart, r.GetDescriptors()[i].GetEntries())
		}
	}
	return a, nil
}

func (s *Service) question(a *asking, q *question, r *rlsv3.RateLimitRequest, d *rlcommon.RateLimitDescriptor) error {
	for _, e := range d.GetEntries() {
		if e.GetKey() == "" {
			return fmt.Errorf("an entry has no key")
		}
	}
	q.hits = hitsOf(r, d)
	if q.refund = d.GetIsNegativeHits(); q.refund && !a.domain.NegativeHits {
		return fmt.Errorf("is_negative_hits: hits are not given back in this domain; its negative_hits allows it")
	}
	if a.domain.root == nil { // nobody knows the domain
		return nil
	}
	n := a.domain.match(d.GetEntries())
	if n != nil {
		q.limit = n.limit
	}
	if d.GetLimit() == nil {
		return nil
	}
	var err error
	q.limit, err = s.overrides.limit(a.domain, n, d.GetLimit())
	return err
}

// hitsOf returns how many hits a descriptor has: its own number, of which 0 means that it
// only looks, else the request's, of which 0 means 1.
func hitsOf(r *rlsv3.RateLimitRequest, d *rlcommon.RateLimitDescriptor) int64 {
	if own := d.GetHitsAddend(); own != nil {
		return int64(min(own.GetValue(), uint64(weir.MaxCost)))
	}
	return min(max(1, int64(r.GetHitsAddend())), weir.MaxCost)
}

// replace takes out limits that others of the request replace.
func (a *asking) replace() {
	var replaced map[string]bool
	for i := range a.list {
		if l := a.list[i].limit; l != nil {
			for _, name := range l.Replaces {
				if replaced == nil {
					replaced = map[string]bool{}
				}
				replaced[name] = true
			}
		}
	}
	for i := range a.list {
		if l := a.list[i].limit; l != nil && !l.Unlimited && l.Name != "" && replaced[l.Name] {
			a.list[i].limit = nil
		}
	}
}
