package weirprom

// Backend is what made a decision.
type Backend uint8

// The backends. Their names are values of the label backend.
const (
	Memory Backend = iota // this process's table, shared with no other process
	Redis                 // the store that all nodes share
	Local                 // this node without the store: a cached denial, a lease, an allowance or its share
	None                  // no limit was evaluated: a block, an exemption, a bad request

	backends = iota
)

var backendNames = [...]string{"memory", "redis", "local", "none"}

// String returns the label, such as "memory".
func (b Backend) String() string {
	if int(b) < len(backendNames) {
		return backendNames[b]
	}
	return other
}
