package gateway

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/internal/jsonrpc"
	"github.com/weirlimit/weir/upstream"
)

// Config describes a route.
type Config struct {
	// Pool are the endpoints, and the route's name. Its JSONRPC must be true: other kinds of routes do not exist yet.
	Pool upstream.Config

	// MaxBody is how many bytes the body of a request may have. The default is 5 MiB, which is also the most.
	MaxBody int64

	// Repeatable are methods that may be executed twice, in addition to those that change nothing: names, or
	// beginnings followed by a *.
	Repeatable []string

	// Origins are those whose pages may call the route (CORS): "https://app.example.com", or "*" for all. The
	// default is none.
	Origins []string

	// Logger is for errors of the route. The default is slog.Default().
	Logger *slog.Logger
}

// Validate returns everything that is wrong with the configuration: a *fielderr.Error for each problem.
func (c Config) Validate() error {
	var problems []error
	add := func(problem string, path ...any) {
		problems = append(problems, fielderr.New("gateway", problem, path...))
	}
	if err := c.Pool.Validate(); err != nil {
		problems = append(problems, err)
	}
	if !c.Pool.JSONRPC {
		add("must be true: only JSON-RPC can be served yet", "Pool", "JSONRPC")
	}
	if c.MaxBody < 0 || c.MaxBody > jsonrpc.MaxRequest {
		add(fmt.Sprintf("must be 1 to %d", jsonrpc.MaxRequest), "MaxBody")
	}
	return errors.Join(problems...)
}
