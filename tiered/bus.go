package tiered

import (
	"context"

	"github.com/weirlimit/weir"
)

// A Bus carries messages between the nodes of a fleet, and counts the nodes. Package
// redistier implements one over Redis. All methods may be called by any number of
// goroutines.
//
// Messages are hints. They may be lost, delayed or delivered twice; a node that misses
// one stays correct and only notices the change later.
type Bus interface {
	// Publish sends messages to all other nodes. It returns an error if it knows that
	// some were lost. The slice belongs to the caller again when Publish returns.
	Publish(ctx context.Context, messages []Message) error

	// Listen has receive called with the messages of other nodes, from one goroutine at
	// a time. A nil slice means that messages may have been lost, so everything that
	// was cached on the assumption that no message arrived must be dropped. receive must
	// return quickly; it may keep the strings of the messages, but not the slice. stop
	// returns once receive is not running and will not be called again.
	Listen(receive func(messages []Message)) (stop func())

	// Nodes returns the number of live nodes at the last count, this one included; 0 if
	// they were never counted.
	Nodes() int
}

// A Message is one event that a node publishes to the others.
type Message struct {
	Kind   MessageKind
	Policy string // name of the policy
	Key    string // of KeyDenied and KeyReset

	// The remaining fields are set for KeyDenied only.

	Limits    uint64       // fingerprint of the policy's limits, equal on all nodes for equal limits
	Cost      int64        // the lowest cost that was denied
	Until     weir.Instant // end of the denial by the receiver's clock, never later than it is valid
	By        uint8        // as in weir.Decision, like the next three
	Limit     int64
	Remaining int64
	ResetAt   weir.Instant // by the receiver's clock
}

// MessageKind is the kind of event that a Message reports.
type MessageKind uint8

// The kinds of messages.
const (
	KeyDenied     MessageKind = iota + 1 // Key has no room for Cost before Until
	KeyReset                             // Key was reset
	PolicyChanged                        // Policy has new limits
)
