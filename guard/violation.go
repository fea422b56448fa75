package guard

import "time"

// Violation is something that a subject did wrong.
type Violation struct {
	Kind     Kind
	Subject  string // the subject's key
	Endpoint string // the name of the endpoint's policy, "" if the kind is not about one
	Limit    string // the name of the limit that refused, or ""
	At       time.Time

	// Shadow says that nothing was refused, because the limit is in shadow.
	Shadow bool

	// Until is when the penalty ends, if Kind is Penalized.
	Until time.Time
}

// Kind is a kind of violation.
type Kind uint8

// The kinds of violations.
const (
	Exceeded  Kind = iota // a limit refused requests
	RapidFire             // the subject sent many requests in a short time: Abuse
	Penalized             // a penalty began
	Sustained             // several penalties began: Penalties.Sustained
)

var kindNames = [...]string{"exceeded", "rapid_fire", "penalized", "sustained"}

// String returns the name of the kind, such as "rapid_fire".
func (k Kind) String() string { return kindNames[k] }

// Offender is a subject that was refused often.
type Offender struct {
	Subject  string
	Refusals int64 // an upper bound; recent ones count more
}

// Offenders returns the n subjects that were refused most in the last minutes, of those in this process.
func (g *Guard) Offenders(n int) []Offender { return nil }
