package guard

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testLong says whether the long forms of tests run: make test-all.
func testLong() bool { return os.Getenv("WEIR_TEST") == "all" }
