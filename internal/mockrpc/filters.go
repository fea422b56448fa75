package mockrpc

import (
	"crypto/rand"
	"time"
)

// filter is what eth_newFilter has made. Only the provider that made it knows it.
type filter struct {
	logs bool
	next uint64 // block that was not polled yet
	used time.Duration
}

const (
	maxFilters    = 1000
	filterTimeout = 5 * time.Minute // without a poll, as with go-ethereum
)

// state is what calls change. The provider's lock guards it.
type state struct {
	now     time.Duration // of the request
	filters map[string]*filter
	sent    map[string]*transaction // by hash
}

func (s *state) newFilter(v view, logs bool) (any, *callError) {
	for id, f := range s.filters {
		if s.now-f.used >= filterTimeout {
			delete(s.filters, id)
		}
	}
	if len(s.filters) == maxFilters {
		return nil, &callError{Code: codeServer, Message: "too many filters"}
	}
	id := "0x" + randomID()
	s.filters[id] = &filter{logs: logs, next: v.head + 1, used: s.now}
	return id, nil
}

// randomID returns 16 digits, so that two providers do not have filters of one id.
func randomID() string {
	const digits = "123456789abcdef"
	b := make([]byte, 16)
	_, _ = rand.Read(b) // which does not fail
	for i := range b {
		b[i] = digits[int(b[i])%len(digits)]
	}
	return string(b)
}

// changes returns what is new since the last poll, of at most maxBlocks blocks.
func (s *state) changes(v view, id string) (any, *callError) {
	f := s.filters[id]
	if f == nil || s.now-f.used >= filterTimeout {
		return nil, &callError{Code: codeServer, Message: "filter not found"}
	}
	f.used = s.now
	from := f.next
	if from > v.head {
		return []any{}, nil
	}
	to := min(v.head, from+maxBlocks-1)
	f.next = to + 1
	if f.logs {
		return v.logs(from, to), nil
	}
	hashes := []any{}
	for n := from; n <= to; n++ {
		hashes = append(hashes, v.hash("block", n))
	}
	return hashes, nil
}

func (s *state) uninstall(id string) bool {
	_, known := s.filters[id]
	delete(s.filters, id)
	return known
}
