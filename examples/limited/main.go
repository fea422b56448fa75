// Command limited is a net/http service with a limit per API key and one per address.
package main

import (
	"fmt"
	"log"
	"net/http"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/weirhttp"
)

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	perKey := weir.Must(weir.NewPolicy("per-key", weir.PerMinute(100)))
	perIP := weir.Must(weir.NewPolicy("per-ip", weir.PerSecond(20)))
	limit := weirhttp.Limit(weir.Must(memstore.New(memstore.Config{})),
		weirhttp.By(perKey, weirhttp.Header("X-Api-Key")), weirhttp.By(perIP, weirhttp.ClientIP()))
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", limit(http.DefaultServeMux)))
}
