// Streamnode is a Connect service with the 17 endpoints of a node of a messaging network, limits for
// each of them, and clients that use and abuse it:
//
//	go run ./examples/streamnode
//	go run ./examples/streamnode -serve 127.0.0.1:8080
//
// The first runs for 10 seconds and reports who was limited, flagged and penalised. The second serves
// until it is interrupted. Begin reading with limits.go and node.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/weirlimit/weir/guard"
)

func main() {
	lasts := flag.Duration("for", 10*time.Second, "how long the clients run; a penalty begins after 4s of abuse")
	penalty := flag.Duration("penalty", 3*time.Second, "how long a penalty lasts while the clients run, so that its end is seen")
	address := flag.String("serve", "", "only serve at this `address`, with penalties of 5m")
	flag.Parse()
	var err error
	if *address != "" {
		err = serve(*address)
	} else {
		err = demonstrate(*lasts, *penalty)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// demonstrate runs the node and its clients, and reports.
func demonstrate(lasts, penalty time.Duration) error {
	s, err := newScenario(penalty)
	if err != nil {
		return err
	}
	defer s.guard.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := newServer(s.handler)
	defer server.Close()
	go server.Serve(listener)
	ctx, cancel := context.WithTimeout(context.Background(), lasts)
	defer cancel()
	go progress(ctx, lasts)
	s.run(ctx, "http://"+listener.Addr().String(), http.DefaultTransport)

	fmt.Printf("Five clients called a node for %v. Penalties lasted %v, which are 5 minutes by default.\n\n", lasts, penalty)
	s.report(os.Stdout)
	return nil
}

// serve serves until it is interrupted, and logs violations.
func serve(address string) error {
	config := limits(0, newIdentity("archive").address())
	config.Hooks.OnViolation = guard.NewLogger(nil, 0).Log
	handler, g, err := newNode(config)
	if err != nil {
		return err
	}
	defer g.Close()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	url := "http://" + listener.Addr().String()
	fmt.Printf(`Try, several times:

  TOKEN=%s
  curl -i -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' -d '{"stream":"lobby"}' %s
  curl -i -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' -d '{}' %s
  curl -i -H 'Content-Type: application/json' -d '{}' %s
  curl -s %s/metrics | grep weir_guard

`, newIdentity("alice").token(), url+pathOf("CreateStream"), url+pathOf("Register"), url+pathOf("GetStream"), url)
	return newServer(handler).Serve(listener)
}

// newServer returns a server for clients of Connect and gRPC, without TLS.
func newServer(handler http.Handler) *http.Server {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	return server
}

// progress shows on a terminal that something happens.
func progress(ctx context.Context, lasts time.Duration) {
	if info, err := os.Stderr.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return
	}
	for begin := time.Now(); ctx.Err() == nil; pause(ctx, time.Second) {
		fmt.Fprintf(os.Stderr, "\rclients are calling: %v of %v ", time.Since(begin).Round(time.Second), lasts)
	}
	fmt.Fprint(os.Stderr, "\r\033[K")
}
