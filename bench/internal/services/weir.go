package services

import (
	"fmt"
	"os/exec"

	"github.com/weirlimit/weir/bench/internal/process"
)

var weirProgram = process.Program{Name: "weir", Module: "..", Package: "./cmd/weir"}

// startWeir starts weir serve with one of its stores.
func (s *site) startWeir(k kind, one *server) (*process.Process, error) {
	program, err := weirProgram.Build()
	if err != nil {
		return nil, err
	}
	config := weirRules
	if k != memory {
		redis, err := s.redisAddr()
		if err != nil {
			return nil, err
		}
		config += fmt.Sprintf(weirRedis, redis, k, k)
	}
	file, err := s.write(string(k)+".yaml", config)
	if err != nil {
		return nil, err
	}
	return process.Start(exec.Command(program, "serve", "--config", file,
		"--http", "127.0.0.1:0", "--grpc", one.grpc, "--resp", one.resp), one.grpc, one.resp)
}
