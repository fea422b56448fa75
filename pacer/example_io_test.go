package pacer_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/weirlimit/weir/pacer"
)

// Download 200 kB at 2 MB/s.
func ExampleNewReader() {
	perSecond, err := pacer.New(pacer.Config{Rate: 2e6})
	if err != nil {
		panic(err)
	}
	download := strings.NewReader(strings.Repeat("x", 200_000))
	begin := time.Now()
	n, err := io.Copy(io.Discard, pacer.NewReader(context.Background(), download, perSecond))
	fmt.Println(n, err, time.Since(begin) > 50*time.Millisecond)
	// Output: 200000 <nil> true
}

// Type 60 characters a second.
func ExampleNewWriter() {
	perSecond, err := pacer.New(pacer.Config{Rate: 60})
	if err != nil {
		panic(err)
	}
	screen := pacer.NewWriter(context.Background(), os.Stdout, perSecond)
	_, err = fmt.Fprintln(screen, "Hello.")
	fmt.Println(err)
	// Output:
	// Hello.
	// <nil>
}
