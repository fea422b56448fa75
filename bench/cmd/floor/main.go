// Command floor answers gRPC and the Redis protocol and decides nothing, beside which the
// survey of services measures weir:
//
//	floor -grpc address -resp address
package main

import (
	"flag"
	"fmt"
	"net"
	"os"

	"github.com/weirlimit/weir/bench/internal/floor"
)

func main() {
	grpc := flag.String("grpc", "127.0.0.1:0", "answer gRPC at this `address`")
	resp := flag.String("resp", "127.0.0.1:0", "answer the Redis protocol at this `address`")
	flag.Parse()
	ended := make(chan error)
	go func() { ended <- serve(*resp, floor.ServeRESP) }()
	go func() { ended <- serve(*grpc, floor.ServeGRPC) }()
	fmt.Fprintln(os.Stderr, "floor:", <-ended)
	os.Exit(1)
}

func serve(addr string, on func(net.Listener) error) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return on(l)
}
