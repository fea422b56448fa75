package ruleset

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// Policy is a configured policy: limits that a request must meet together, each with its own
// attribute and unit. It is data; Compile turns it into a Rule.
type Policy struct {
	// Name is the name that callers use, for example "api": 1 to 64 letters, digits or
	// -_.
	Name string

	// Mode is the mode of limits without their own. The default is Enforce.
	Mode Mode

	// Rollout is the share of keys for which the limits are enforced; for the others they are
	// in Shadow. A hash selects the keys, the same on every node and in every version, so that
	// a key that is enforced at 10 % also is at 20 %. The default, 0, is all.
	Rollout Share

	// RolloutGroup is what the hash selects the keys by. Policies with the same group and
	// Rollout enforce for the same keys. The default is Name.
	RolloutGroup string

	// Limits are what a request must meet, all of them or none is charged.
	Limits []Limit

	// Overrides set other limits for some keys. The most specific match applies: the key
	// itself, then the longest prefix.
	Overrides []Override

	// NoOverrides means that overrides are refused, also those of operators: all requests have one
	// key, and its limits are those of the policy or a plan.
	NoOverrides bool

	// Plans are named sets of limits, such as the tiers of a service. Query.Plan selects one.
	Plans []Plan
}

// Limit is a weir.Limit with the unit that it counts and the attribute that it is charged by.
type Limit struct {
	weir.Limit

	// By is the attribute of a request whose value is charged, for example "ip".
	// The default is the request's key.
	By string

	// Unit is what the limit counts, for example "tokens". The default is
	// Requests.
	Unit string

	// Mode is this limit's mode. The default is the policy's. A limit whose own mode changes
	// from or to Shadow begins unused; a change of the policy's mode keeps the usage.
	Mode Mode

	// Hidden means that the limit is not shown to clients in headers, for limits that protect
	// against abuse. Overrides and plans cannot change it. Decisions do not depend on it.
	Hidden bool
}

// Requests is the unit of a cost that is a plain number.
const Requests = "requests"

// Override sets other limits for a key, or for all keys with a prefix. The units in use are
// kept.
type Override struct {
	// Key is a key such as "alice", or a prefix such as "partner-*". A key that itself ends
	// in * cannot have an override of its own.
	Key string

	// Limits replace those of the policy with the same name. By, Unit, Mode and Algorithm are
	// the replaced limit's unless they are given. So are Classes, which then have the same parts
	// of the new rate and burst.
	Limits []Limit

	// Until is when the override expires. The zero time means never.
	Until time.Time
}

// Mode says whether a limit is enforced.
type Mode uint8

// The modes.
const (
	ModeDefault Mode = iota // Enforce, or the policy's mode
	Enforce                 // requests above the limit are refused
	Shadow                  // charged as if enforced; a refusal is only reported
	Off                     // not charged
)

var modeNames = [...]string{"default", "enforce", "shadow", "off"}

// String returns the mode as configurations write it.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// or returns m or, if it is the default, other.
func (m Mode) or(other Mode) Mode {
	if m == ModeDefault {
		return other
	}
	return m
}

// UnmarshalText accepts enforce, shadow and off.
func (m *Mode) UnmarshalText(text []byte) error {
	i := slices.Index(modeNames[:], string(text))
	if i <= int(ModeDefault) {
		return fmt.Errorf("mode %q: must be enforce, shadow or off", text)
	}
	*m = Mode(i)
	return nil
}

// MarshalText returns String.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// Share is a part of a whole in hundredths of a percent; 10,000 is all.
type Share uint16

// All is the whole.
const All Share = 10_000

// String returns the share as configurations write it, for example "12.5%".
func (s Share) String() string {
	text := fmt.Sprintf("%d.%02d", s/100, s%100)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + "%"
}
