package memstore_test

import (
	"context"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
)

var perHost = weir.Must(memstore.NewKeyed(weir.PerSecond(50)))

// A crawler fetches at most 50 pages per second from each host.
func ExampleNewKeyed_crawler() {
	var pages sync.WaitGroup
	for _, host := range []string{"a.example", "a.example", "b.example"} {
		pages.Go(func() {
			if err := perHost.Wait(context.Background(), host); err == nil {
				_ = "http.Get(…)"
			}
		})
	}
	pages.Wait()
	// Output:
}
