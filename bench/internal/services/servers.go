package services

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/weirlimit/weir/bench/internal/process"
	"github.com/weirlimit/weir/bench/internal/redisserver"
)

// A server is a process that answers.
type server struct {
	*process.Process
	grpc, resp string // addresses
}

// A kind says which server it is: weir by its store, or another program.
type kind string

const (
	memory    kind = "memory"
	exact     kind = "exact"
	leased    kind = "leased"
	async     kind = "async"
	ratelimit kind = "ratelimit"
	empty     kind = "floor"
)

// A site is where a survey is made: the servers that were started for it, and the Redis
// that they share.
type site struct {
	dir     string              // for their configurations
	redis   *redisserver.Server // nil until somebody needs it
	servers map[kind]*server

	// denyCache has ratelimit remember in memory who was refused.
	denyCache bool
}

func newSite(denyCache bool) (*site, error) {
	dir, err := os.MkdirTemp("", "weir-bench-")
	return &site{dir: dir, servers: make(map[kind]*server), denyCache: denyCache}, err
}

// close ends everything.
func (s *site) close() error {
	for _, one := range s.servers {
		one.Stop()
	}
	if s.redis != nil {
		s.redis.Stop()
	}
	return os.RemoveAll(s.dir)
}

// server returns the server of a kind, started if need be.
func (s *site) server(k kind) (*server, error) {
	if one := s.servers[k]; one != nil {
		return one, nil
	}
	var problem error
	for range startTries {
		one, err := s.start(k)
		if err == nil {
			s.servers[k] = one
			return one, nil
		}
		if problem = err; !errors.Is(err, process.ErrEnded) {
			break
		}
	}
	return nil, problem
}

// startTries is how often others may take a port before the server does.
const startTries = 5

func (s *site) start(k kind) (*server, error) {
	var addrs [2]string
	for i := range addrs {
		var err error
		if addrs[i], err = process.FreeAddr(); err != nil {
			return nil, err
		}
	}
	one := &server{grpc: addrs[0], resp: addrs[1]}
	var err error
	switch k {
	case empty:
		one.Process, err = startFloor(one)
	case ratelimit:
		one.Process, err = s.startRatelimit(one)
	default:
		one.Process, err = s.startWeir(k, one)
	}
	return one, err
}

// redisAddr returns where Redis is, which is started if need be.
func (s *site) redisAddr() (string, error) {
	if s.redis == nil {
		started, err := redisserver.Start()
		if err != nil {
			return "", err
		}
		s.redis = started
	}
	return s.redis.Addr, nil
}

// cpu returns the processor time that all servers and Redis have had.
func (s *site) cpu() (all, redis time.Duration, err error) {
	if s.redis != nil {
		if redis, err = s.redis.CPUTime(); err != nil {
			return 0, 0, err
		}
	}
	all = redis
	for _, one := range s.servers {
		used, err := one.CPUTime()
		if err != nil {
			return 0, 0, err
		}
		all += used
	}
	return all, redis, nil
}

// write writes a file into the site's directory and returns its path.
func (s *site) write(name, text string) (string, error) {
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, []byte(text), 0o600)
}

var floorProgram = process.Program{Name: "floor", Module: ".", Package: "./cmd/floor"}

func startFloor(one *server) (*process.Process, error) {
	program, err := floorProgram.Build()
	if err != nil {
		return nil, err
	}
	return process.Start(exec.Command(program, "-grpc", one.grpc, "-resp", one.resp), one.grpc, one.resp)
}
