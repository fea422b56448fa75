package weirprom

// Backend is who decided.
type Backend uint8

// The backends. Their names are values of the label backend.
const (
	Memory Backend = iota // this process is the only one that counts
	Redis                 // the store that all nodes share was asked
	Local                 // this node decided for all: a lease, a known denial, its copy, its share
	None                  // no limit was looked at: a block, an exemption, a bad request

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
