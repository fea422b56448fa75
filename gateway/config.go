package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"

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
	for i, pattern := range c.Repeatable {
		if pattern == "" || strings.Contains(strings.TrimSuffix(pattern, "*"), "*") {
			add("must be a method, or the beginning of one and a *", "Repeatable", i)
		}
	}
	for i, origin := range c.Origins {
		if problem := checkOrigin(origin); problem != "" {
			add(problem, "Origins", i)
		} else if slices.Contains(c.Origins[:i], origin) {
			add("is there twice", "Origins", i)
		}
	}
	tags := map[string]string{}
	for i, e := range c.Pool.Endpoints {
		tag := filterTag(c.Pool.Name, e.Alias)
		if other := tags[tag]; other != "" && other != e.Alias {
			add(fmt.Sprintf("its filters cannot be told from those of %q: choose another alias", other), "Pool", "Endpoints", i, "Alias")
		}
		tags[tag] = e.Alias
	}
	return errors.Join(problems...)
}

// checkOrigin returns what is wrong with an origin as browsers write it.
func checkOrigin(origin string) string {
	if origin == "*" {
		return ""
	}
	u, err := url.Parse(origin)
	switch {
	case err != nil || u.Scheme == "" || u.Host == "":
		return "must be an origin such as https://app.example.com, or *"
	case origin != u.Scheme+"://"+u.Host || origin != strings.ToLower(origin):
		return "must be the scheme, the host and maybe the port, in lower case, and nothing else: https://app.example.com:8443"
	case u.Scheme == "http" && u.Port() == "80", u.Scheme == "https" && u.Port() == "443":
		return "must not name the port, as it is that of the scheme: browsers leave it out"
	}
	return ""
}
