// Stall is a server that answers at once, except that every ten seconds it
// answers nobody for one. It shows what an open and a closed loop make of that:
//
//	go run ./examples/stall &
//	weir load --rate 500 --for 30s --svg stall.svg http://127.0.0.1:8099/
//	go run ./examples/stall -closed
//
// The second is a client of the usual kind: 16 connections that each wait for an
// answer before they ask again. While the server stalls they ask nothing, so
// only 16 of its requests in ten seconds see the stall, and its p99 looks well.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	address = "127.0.0.1:8099"
	every   = 10 * time.Second
	stall   = time.Second

	connections = 16
	rate        = 500 // per second, all connections together
	duration    = 30 * time.Second
)

func main() {
	closed := flag.Bool("closed", false, "be the client that waits for its answers")
	flag.Parse()
	if *closed {
		ask()
		return
	}
	log.Printf("http://%s/ stalls for %v every %v", address, stall, every)
	server := &http.Server{Addr: address, Handler: stalling(time.Now()), ReadHeaderTimeout: time.Second}
	log.Fatal(server.ListenAndServe())
}

func stalling(begin time.Time) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if into := time.Since(begin) % every; into > every-stall {
			time.Sleep(every - into)
		}
		fmt.Fprintln(w, "hello")
	}
}

// ask keeps the same rate as weir load, as long as it gets its answers.
func ask() {
	var mu sync.Mutex
	var took []time.Duration
	var all sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}}
	end := time.Now().Add(duration)
	for range connections {
		all.Go(func() {
			for time.Now().Before(end) {
				d := once(client)
				mu.Lock()
				took = append(took, d)
				mu.Unlock()
				time.Sleep(time.Second*connections/rate - d)
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	fmt.Printf("%d requests, p50 %v, p99 %v, max %v\n",
		len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
}

func once(client *http.Client) time.Duration {
	began := time.Now()
	resp, err := client.Get("http://" + address + "/")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return time.Since(began)
}
