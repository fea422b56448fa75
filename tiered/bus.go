package tiered

import (
	"context"

	"github.com/weirlimit/weir"
)

// A Bus carries word between the nodes of a fleet, and counts them. Package
// redistier has one over Redis. All methods may be called by any number of
// goroutines.
//
// Word is a hint: it may be lost, come twice or late, and a node is right without
// it, only slower to notice.
type Bus interface {
	// Publish tells all other nodes. It may lose words, and says so by an error
	// if it knows. The words are the caller's again when it returns.
	Publish(ctx context.Context, words []Word) error

	// Listen has heard called with what other nodes publish, by one goroutine at
	// a time, and with nil when words may have been lost: what was believed
	// because nobody had said otherwise is believed no longer. heard must be
	// quick; it may keep the words' strings, not the words. stop returns when heard is
	// not running and will not be called.
	Listen(heard func(words []Word)) (stop func())

	// Nodes returns how many nodes are alive, this one included, as last counted;
	// 0 if that was never known.
	Nodes() int
}

// A Word is one thing that a node tells the others.
type Word struct {
	Kind   WordKind
	Policy string // its name
	Key    string // for Denied and WasReset

	// The rest is for Denied.

	Limits    uint64       // which numbers the policy had: equal on all nodes for equal limits
	Cost      int64        // the least that was refused
	Until     weir.Instant // by the clock of whoever reads it, never later than it is true
	By        uint8        // as in weir.Decision, like the next three
	Limit     int64
	Remaining int64
	ResetAt   weir.Instant // by the reader's clock
}

// WordKind is what a Word is about.
type WordKind uint8

// The kinds of words.
const (
	Denied   WordKind = iota + 1 // Key has no room for Cost before Until
	WasReset                     // Key was reset
	WasSet                       // Policy has other limits
)
