package services

import (
	"net"
	"os"
	"os/exec"
	"strconv"

	"github.com/weirlimit/weir/bench/internal/process"
)

// cacheBytes is what ratelimit may have for those that were refused: several times what
// the keys of a survey need.
const cacheBytes = 64 << 20

// Ratelimit is the module of the peer, which is built in a module of its own.
const Ratelimit = "github.com/envoyproxy/ratelimit"

var ratelimitProgram = process.Program{Name: "ratelimit", Module: "ratelimit", Package: Ratelimit + "/src/service_cmd"}

// RatelimitVersion returns the version of the peer that is built.
func RatelimitVersion() (string, error) { return ratelimitProgram.Version(Ratelimit) }

// startRatelimit starts envoyproxy/ratelimit with its defaults, but without statistics for
// a daemon that is not there, and with the local cache where it is asked for. Its authors
// recommend to write to Redis in bursts (REDIS_PIPELINE_WINDOW), which is not its default
// and not measured here: a trial on a busy machine did not settle whether that is faster.
func (s *site) startRatelimit(one *server) (*process.Process, error) {
	program, err := ratelimitProgram.Build()
	if err != nil {
		return nil, err
	}
	redis, err := s.redisAddr()
	if err != nil {
		return nil, err
	}
	if _, err := s.write("ratelimit/config/bench.yaml", ratelimitRules); err != nil {
		return nil, err
	}
	ports, err := ratelimitPorts(one.grpc)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis, "USE_STATSD=false",
		"RUNTIME_ROOT="+s.dir, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false")
	cmd.Env = append(cmd.Env, ports...)
	if s.denyCache {
		cmd.Env = append(cmd.Env, "LOCAL_CACHE_SIZE_IN_BYTES="+strconv.Itoa(cacheBytes))
	}
	return process.Start(cmd, one.grpc)
}

// ratelimitPorts gives it the port of an address for gRPC, and free ones for the rest.
func ratelimitPorts(grpc string) (env []string, err error) {
	for _, name := range []string{"GRPC_PORT", "PORT", "DEBUG_PORT"} {
		addr := grpc
		if name != "GRPC_PORT" {
			if addr, err = process.FreeAddr(); err != nil {
				return nil, err
			}
		}
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		env = append(env, name+"="+port)
	}
	return env, nil
}
