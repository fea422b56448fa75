package target

import "time"

// Config says what to call. Only URL is needed for a GET.
type Config struct {
	// Protocol is how to speak. The default, Auto, goes by the URL.
	Protocol Protocol

	// URL is where to connect to, such as "https://127.0.0.1:8443/items/{{rand 100}}?a=1",
	// "grpc://127.0.0.1:9000" or "redis://user:password@127.0.0.1:6379/2". The schemes
	// are http, https, grpc, grpcs, redis and rediss. Path and query of HTTP URLs may
	// contain variables.
	URL string

	// Method is the method of HTTP, by default GET, or POST if there is a body; the
	// method of JSON-RPC, "eth_blockNumber"; or that of gRPC, "package.Service/Method".
	Method string

	// Headers are "Name: value" each, in gRPC metadata. Values may contain variables.
	Headers []string

	// Body is the body of HTTP, the JSON of the gRPC request (by default {}) or that
	// of JSON-RPC's params. It may contain variables.
	Body string

	// Command is what to send to Redis, {"SET", "key:{{zipf 1000}}", "x"}. Each part
	// may contain variables.
	Command []string

	// Descriptors is the file of a FileDescriptorSet that describes the gRPC method,
	// as protoc --include_imports --descriptor_set_out writes it. The default is
	// server reflection and, if the server has none, what this program knows of services.
	Descriptors string

	// Connections is how many goroutines will call. The default is 1. HTTP/1 and
	// Redis have as many connections; HTTP/2 and gRPC share up to four.
	Connections int

	// Timeout is that of one call, and of Open. The default is 10 seconds.
	Timeout time.Duration

	// Insecure accepts any TLS certificate.
	Insecure bool

	// Seed is where random variables begin, so that a run can be repeated.
	Seed uint64
}

// The bounds on what is read from a target, and what Config's zero values mean.
const (
	maxAnswer      = 64 << 20
	defaultTimeout = 10 * time.Second

	// maxShared is how many connections those protocols have that can share one: the
	// more, the less do callers wait for each other's frames, but a few are enough to
	// keep a machine busy.
	maxShared = 4
)

// Validate reports everything that makes no sense, and where. It does not look at
// files or the network.
func (c Config) Validate() error {
	_, err := compile(c)
	return err
}

func (c Config) withDefaults() Config {
	if c.Connections == 0 {
		c.Connections = 1
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	return c
}
