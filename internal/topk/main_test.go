package topk

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv("WEIR_TEST") == "all" {
		_ = flag.Set("rapid.checks", "10000")
	}
	goleak.VerifyTestMain(m)
}
