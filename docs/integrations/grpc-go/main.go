// Grpc-go asks weir before each of six jobs, by gRPC:
//
//	weir serve --config weir.yaml
//	go run ./grpc-go
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
)

const (
	maxFailures = 5
	backoff     = 50 * time.Millisecond // after the first failure; it doubles with each
)

func main() {
	// If weir has clients, calls carry a token:
	// metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	conn, err := grpc.NewClient(cmp.Or(os.Getenv("WEIR_ADDR"), "127.0.0.1:8081"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	weir := weirv1.NewLimiterServiceClient(conn)
	for job := 1; job <= 6; job++ {
		left, err := admit(context.Background(), weir, job)
		if err != nil {
			log.Fatalf("job %d: %v", job, err)
		}
		fmt.Printf("job %d: done, %d left\n", job, left) // here goes the work
	}
}

// admit returns once the job may begin, and how many more may at once.
func admit(ctx context.Context, weir weirv1.LimiterServiceClient, job int) (left int64, err error) {
	for failures := 0; ; {
		d, err := check(ctx, weir)
		switch {
		case err != nil && failures == maxFailures:
			return 0, err
		case err != nil:
			fmt.Printf("job %d: no decision, backing off\n", job)
			pause := backoff << failures
			time.Sleep(pause + rand.N(pause)) // not all at the same moment
			failures++
		case d.Allowed:
			return d.Remaining, nil
		case d.RetryAfterMs < 0:
			return 0, errors.New("refused, and waiting cannot help")
		default:
			fmt.Printf("job %d: refused, waiting %d ms\n", job, d.RetryAfterMs)
			time.Sleep(time.Duration(d.RetryAfterMs) * time.Millisecond)
		}
	}
}

// check asks once, and waits no longer than a second. A refusal is an answer, not an error.
func check(ctx context.Context, weir weirv1.LimiterServiceClient) (*weirv1.CheckResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return weir.Check(ctx, &weirv1.CheckRequest{Policy: "api", Key: "alice"})
}
