package config

import (
	"cmp"
	"crypto/tls"
	"net"
	"reflect"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/store/redisstore"
	"github.com/weirlimit/weir/tiered"
)

// Store is where the counts are.
type Store struct {
	// Kind is memory, or redis for counts that several daemons share.
	Kind StoreKind `yaml:"kind" default:"memory" example:"redis"`

	// MaxKeys is how many keys are kept in memory, at about 21 bytes each. Beyond, those
	// with the least usage are evicted.
	MaxKeys int `yaml:"max_keys" default:"1000000" example:"10000000" jsonschema:"minimum=1,maximum=1000000000"`

	// Snapshot saves the counters in memory to a file, so that they survive a restart.
	Snapshot *Snapshot `yaml:"snapshot"`

	// Redis is where Redis is, and how it is used.
	Redis *Redis `yaml:"redis"`
}

// StoreKind is a place for counts.
type StoreKind string

// The kinds of stores.
const (
	Memory  StoreKind = "memory"
	InRedis StoreKind = "redis"
)

func (StoreKind) choices() []string { return []string{string(Memory), string(InRedis)} }

// prepare gives a store in Redis its defaults.
func (*Store) prepare(n *node) {
	if kind := n.child("kind"); kind != nil && kind.text == string(InRedis) && n.child("redis") == nil {
		n.put("redis", newMapping(place{source: fromDefault}))
	}
}

// Snapshot keeps counts in a file.
type Snapshot struct {
	// File is the file. Only its owner can read it.
	File Path `yaml:"file" example:"weir.snap" jsonschema:"required"`

	// Every is how often it is written. A crash loses the usage since the last write.
	Every Duration `yaml:"every" default:"1m" example:"10s"`
}

// Redis is where Redis is, and how it is used.
type Redis struct {
	// Addrs are where Redis is, as host:port: one server, some nodes of a cluster or, with
	// sentinel_master, some Sentinels. One alone may also be the path of a socket or a URL
	// redis://user:password@host:port/db, with rediss:// for TLS, and any may be ${NAME}.
	// The default is 127.0.0.1:6379, with sentinel_master 127.0.0.1:26379.
	Addrs []Address `yaml:"addrs" example:"[127.0.0.1:6379]"`

	// Sentinel is the name by which Sentinels know the primary, often mymaster.
	Sentinel string `yaml:"sentinel_master" example:"mymaster"`

	// SentinelUsername is for logging in to the Sentinels.
	SentinelUsername string `yaml:"sentinel_username" example:"weir"`

	// SentinelPassword is for logging in to the Sentinels.
	SentinelPassword Secret `yaml:"sentinel_password" example:"\"${SENTINEL_PASSWORD}\""`

	// SentinelPasswordFile is a file with that password.
	SentinelPasswordFile Path `yaml:"sentinel_password_file" example:"secrets/sentinel"`

	// Username is for logging in to Redis. The default is its user default.
	Username string `yaml:"username" example:"weir"`

	// Password is for logging in to Redis. The default is not to log in.
	Password Secret `yaml:"password" example:"\"${REDIS_PASSWORD}\""`

	// PasswordFile is a file with that password.
	PasswordFile Path `yaml:"password_file" example:"secrets/redis"`

	// DB is the number of the database. A cluster has only 0.
	DB int `yaml:"db" default:"0" example:"0" jsonschema:"minimum=0"`

	// TLS makes all connections use TLS; {} is enough for servers with public
	// certificates.
	TLS *RedisTLS `yaml:"tls"`

	// Prefix is how all keys begin, before a colon. Daemons with the same prefix share
	// their counts.
	Prefix string `yaml:"prefix" default:"weir" example:"shop"`

	// Consistency is when Redis is called: exact for every decision, leased for blocks of
	// units that are then spent by this daemon, async after decisions, which may admit too
	// much, within a bound.
	Consistency Consistency `yaml:"consistency" default:"exact" example:"leased"`

	// Timeout is how long a decision may take. Those of budgets and of routes may take 250 ms, if
	// that is longer.
	Timeout Duration `yaml:"timeout" default:"10ms" example:"25ms"`

	// OnError is what happens while Redis does not answer in time: local admits this
	// daemon's share of the limits, open admits everything, closed nothing.
	OnError OnError `yaml:"on_error" default:"local" example:"closed"`

	// Nodes is how many daemons share Redis, for on_error: local: auto counts them.
	Nodes Nodes `yaml:"nodes" default:"auto" example:"3"`

	// Required ends a daemon that cannot use Redis when it starts. The default is to start, to
	// decide by on_error and to connect later.
	Required bool `yaml:"required" default:"false" example:"true"`
}

// RedisTLS is how Redis is connected to with TLS.
type RedisTLS struct {
	// CAFile is a file with the authorities to trust, as PEM. The default is those of the
	// system.
	CAFile Path `yaml:"ca_file" example:"tls/redis-ca.pem"`

	// CertFile is a file with the daemon's certificate, for servers that request one.
	CertFile Path `yaml:"cert_file" example:"tls/weir.pem"`

	// KeyFile is a file with that certificate's key.
	KeyFile Path `yaml:"key_file" example:"tls/weir.key"`

	// ServerName is the name that the servers' certificates have. The default is the host
	// they are reached by.
	ServerName string `yaml:"server_name" example:"redis.internal"`
}

// Consistency is when Redis is called.
type Consistency struct{ tiered.Mode }

func (Consistency) choices() []string { return []string{"exact", "leased", "async"} }

// OnError is what happens while a store does not answer.
type OnError struct{ weir.OnError }

func (OnError) choices() []string { return []string{"local", "open", "closed"} }

// StoreSettings is what a store is made from, besides File.Store.
type StoreSettings struct {
	Memory memstore.Config   // for Memory
	Redis  redisstore.Config // for InRedis, like Tier
	Tier   tiered.Config     // Mode, OnError, Timeout and Nodes
}

const leastEvery = time.Second // between snapshots

func (s *Store) check(c *checker, at path) {
	out := &c.out.Store
	c.out.server.Backend = string(s.Kind)
	out.Memory = memstore.Config{MaxKeys: s.MaxKeys, Snapshots: s.Snapshot != nil}
	switch snapshot := at.key("snapshot"); {
	case s.Snapshot == nil || s.Snapshot.File.Name == "":
	case s.Snapshot.Every.Duration < leastEvery:
		c.wrong(snapshot.key("every"), "%v must be at least %v", s.Snapshot.Every.Duration, leastEvery)
	case s.Kind == InRedis:
		c.warn(c.at(snapshot), snapshot, "has no effect, because the counts are in Redis")
	}
	if s.Redis == nil {
		return
	}
	at = at.key("redis")
	if c.at(path{}.key("store").key("kind")).source == fromDefault { // who writes kind: memory means it
		c.warn(c.at(at), at, "has no effect, because the counts are in memory: set kind: redis")
	}
	out.Redis = s.Redis.store(c, at)
	out.Tier = tiered.Config{Timeout: s.Redis.Timeout.Duration, Nodes: int(s.Redis.Nodes), Mode: s.Redis.Consistency.Mode, OnError: s.Redis.OnError.OnError}
}

// store makes the settings of the store in Redis.
func (r *Redis) store(c *checker, at path) redisstore.Config {
	if strings.ContainsAny(r.Prefix, "{} \t\n") || strings.HasSuffix(r.Prefix, ":") || r.Prefix == "" {
		c.wrong(at.key("prefix"), "%q must not be empty, contain spaces or braces, or end with a colon, which is added", r.Prefix)
	}
	server := r.server(c, at)
	c.invalid(server.Validate(), reflect.TypeFor[Redis](), at)
	return redisstore.Config{Redis: server, Prefix: r.Prefix + ":", Timeout: r.Timeout.Duration}
}

// server returns where Redis is and how to log in.
func (r *Redis) server(c *checker, at path) (out redisstore.Server) {
	for _, a := range r.Addrs {
		out.Addrs = append(out.Addrs, a.Reveal())
	}
	if len(r.Addrs) == 1 && strings.Contains(out.Addrs[0], "://") {
		url, err := redisstore.ParseServer(out.Addrs[0])
		if err != nil {
			c.wrong(at.key("addrs").item(0), "%s", strings.TrimPrefix(err.Error(), "redisconn: "))
			url.Addrs = nil // of which nothing more is to be said
		}
		out = url
	}
	password, _ := c.secret(r.Password, r.PasswordFile, at, "password")
	for _, once := range []struct {
		field     string
		here, url bool
	}{
		{"username", r.Username != "", out.Username != ""},
		{"password", !r.Password.IsZero(), !out.Password.IsZero()},
		{"password_file", r.PasswordFile.Name != "", !out.Password.IsZero()},
		{"db", r.DB != 0, out.DB != 0},
		{"tls", r.TLS != nil, out.TLS != nil},
	} {
		if once.here && once.url {
			c.wrong(at.key(once.field), "is in the URL of addrs, too: say it once")
		}
	}
	out.DB, out.Username = cmp.Or(r.DB, out.DB), cmp.Or(r.Username, out.Username)
	if !password.IsZero() {
		out.Password = password
	}
	out.Sentinel, out.SentinelUsername = r.Sentinel, r.SentinelUsername
	out.SentinelPassword, _ = c.secret(r.SentinelPassword, r.SentinelPasswordFile, at, "sentinel_password")
	if r.TLS != nil {
		out.TLS = r.TLS.config(c, out.Addrs, at.key("tls"))
	}
	return out
}

func (t *RedisTLS) config(c *checker, addrs []string, at path) *tls.Config {
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.ServerName == "" && len(addrs) == 1 {
		out.ServerName, _, _ = net.SplitHostPort(addrs[0]) // redisconn says what is wrong with it
	}
	if t.CAFile.Name != "" {
		out.RootCAs = c.authorities(t.CAFile, at.key("ca_file"))
	}
	switch {
	case t.CertFile.Name != "" && t.KeyFile.Name != "":
		out.Certificates = c.certificate(t.CertFile, t.KeyFile, at)
	case t.CertFile.Name != "" || t.KeyFile.Name != "":
		c.wrong(at, "cert_file and key_file need each other")
	}
	return out
}
