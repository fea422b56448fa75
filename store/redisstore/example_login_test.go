package redisstore_test

import (
	"context"
	"fmt"
	"os"

	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/store/redisstore"
)

// A server with a user and a password. Whatever prints the password prints ***.
func ExampleServer() {
	os.Setenv("REDIS_PASSWORD", "open sesame") // usually set by whoever starts the program
	server := redisstore.Server{
		Addrs:    []string{"redis.internal:6379"},
		Username: "weir",
		Password: secret.New(os.Getenv("REDIS_PASSWORD")),
	}
	fmt.Println(server.Username, server.Password)
	// Output: weir ***
}

// Sentinels have users and passwords of their own.
func ExampleServer_sentinel() {
	store, err := redisstore.New(context.Background(), redisstore.Config{Redis: redisstore.Server{
		Addrs:            []string{"sentinel-a:26379", "sentinel-b:26379", "sentinel-c:26379"},
		Sentinel:         "mymaster",
		SentinelPassword: secret.New(os.Getenv("SENTINEL_PASSWORD")),
		Password:         secret.New(os.Getenv("REDIS_PASSWORD")),
	}})
	if err != nil {
		panic(err)
	}
	defer store.Close()
}
