// Weir is a rate limiter: 'weir serve' starts a daemon that other programs ask
// before they do something. 'weir --help' shows the rest.
package main

import (
	"context"
	"os"

	"github.com/weirlimit/weir/internal/cli"
)

func main() {
	os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
