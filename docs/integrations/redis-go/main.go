// Redis-go asks weir before each of six jobs, through go-redis:
//
//	weir serve --config weir.yaml
//	go run ./redis-go
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

	"github.com/redis/go-redis/v9"
)

const (
	maxFailures = 5
	backoff     = 50 * time.Millisecond // after the first failure; it doubles with each
)

func main() {
	weir := redis.NewClient(&redis.Options{
		Addr: cmp.Or(os.Getenv("WEIR_ADDR"), "127.0.0.1:6380"),
		// Username: "checkout", Password: os.Getenv("WEIR_TOKEN"), // if weir has clients
		ReadTimeout: time.Second,
		MaxRetries:  -1, // a check that is sent again counts again
	})
	defer weir.Close()
	for job := 1; job <= 6; job++ {
		left, err := admit(context.Background(), weir, job)
		if err != nil {
			log.Fatalf("job %d: %v", job, err)
		}
		fmt.Printf("job %d: done, %d left\n", job, left) // here goes the work
	}
}

// admit returns once the job may begin, and how many more may at once.
func admit(ctx context.Context, weir *redis.Client, job int) (left int64, err error) {
	for failures := 0; ; {
		// allowed, limit, remaining, retry_ms, reset_ms
		d, err := weir.Do(ctx, "WEIR.CHECK", "api", "alice").Int64Slice()
		switch {
		case err != nil && failures == maxFailures:
			return 0, err
		case err != nil:
			fmt.Printf("job %d: no decision, backing off\n", job)
			pause := backoff << failures
			time.Sleep(pause + rand.N(pause)) // not all at the same moment
			failures++
		case d[0] == 1:
			return d[2], nil
		case d[3] < 0:
			return 0, errors.New("refused, and waiting cannot help")
		default:
			fmt.Printf("job %d: refused, waiting %d ms\n", job, d[3])
			time.Sleep(time.Duration(d[3]) * time.Millisecond)
		}
	}
}
