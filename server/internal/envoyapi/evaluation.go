package envoyapi

import (
	"fmt"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirlimit/weir"
)

// evaluation is the evaluation of one request.
type evaluation struct {
	domain   *domain
	list     []descriptor // one per descriptor
	admitted bool
}

// descriptor is the evaluation of one descriptor.
type descriptor struct {
	limit  *limit // nil if no limit applies
	key    string
	hits   int64
	refund bool // hits are refunded

	over      bool
	remaining int64
	reset     time.Duration
	estimate  bool // it was decided without the store
}

// counts reports whether the limiter decides the descriptor.
func (desc *descriptor) counts() bool { return desc.limit != nil && desc.limit.policy != nil }

func (desc *descriptor) mode() mode {
	if desc.limit == nil {
		return ordinary
	}
	return desc.limit.mode
}

// read makes the evaluation of a request.
func (s *Service) read(d *domain, r *rlsv3.RateLimitRequest) (*evaluation, error) {
	e := &evaluation{domain: d, list: make([]descriptor, len(r.GetDescriptors()))}
	for i, descriptor := range r.GetDescriptors() {
		if err := s.descriptor(e, &e.list[i], r, descriptor); err != nil {
			return nil, fmt.Errorf("descriptors[%d]: %w", i, err)
		}
	}
	e.replace()
	for i := range e.list {
		if desc := &e.list[i]; desc.counts() {
			desc.key = keyOf(desc.limit, r.GetDescriptors()[i].GetEntries())
		}
	}
	return e, nil
}

func (s *Service) descriptor(e *evaluation, desc *descriptor, r *rlsv3.RateLimitRequest, d *rlcommon.RateLimitDescriptor) error {
	for _, e := range d.GetEntries() {
		if e.GetKey() == "" {
			return fmt.Errorf("an entry has no key")
		}
	}
	desc.hits = hitsOf(r, d)
	if desc.refund = d.GetIsNegativeHits(); desc.refund && !e.domain.NegativeHits {
		return fmt.Errorf("is_negative_hits: this domain does not refund hits; set its negative_hits to allow it")
	}
	if e.domain.root == nil { // an unknown domain
		return nil
	}
	n := e.domain.match(d.GetEntries())
	if n != nil {
		desc.limit = n.limit
	}
	if d.GetLimit() == nil {
		return nil
	}
	var err error
	desc.limit, err = s.overrides.limit(e.domain, n, d.GetLimit())
	return err
}

// hitsOf returns the hits of a descriptor: its own number, for which 0 means to charge nothing,
// else the request's, for which 0 means 1.
func hitsOf(r *rlsv3.RateLimitRequest, d *rlcommon.RateLimitDescriptor) int64 {
	if own := d.GetHitsAddend(); own != nil {
		return int64(min(own.GetValue(), uint64(weir.MaxCost)))
	}
	return min(max(1, int64(r.GetHitsAddend())), weir.MaxCost)
}

// replace removes limits that are replaced by others of the request.
func (e *evaluation) replace() {
	var replaced map[string]bool
	for i := range e.list {
		if l := e.list[i].limit; l != nil {
			for _, name := range l.Replaces {
				if replaced == nil {
					replaced = map[string]bool{}
				}
				replaced[name] = true
			}
		}
	}
	for i := range e.list {
		if l := e.list[i].limit; l != nil && !l.Unlimited && l.Name != "" && replaced[l.Name] {
			e.list[i].limit = nil
		}
	}
}
