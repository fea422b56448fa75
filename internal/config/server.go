package config

import (
	"github.com/weirlimit/weir/server"
)

// Server returns the part of the configuration that is the server's. The caller adds the
// Limiter, the log and what else is not in a file.
func (c *Config) Server() server.Config {
	out := c.server
	for _, s := range c.settings {
		out.Live.Effective = append(out.Live.Effective, server.Setting{Path: s.Path, Value: s.Value, Source: s.Source})
	}
	return out
}

// Live returns what a running server can take over from the configuration.
func (c *Config) Live() server.Live { return c.Server().Live }
