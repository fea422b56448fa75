package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir/faults/internal/report"
	"github.com/weirlimit/weir/faults/internal/rig"
)

// long says whether faults last as long as the matrix says, one after the other, and
// times are judged.
var long = os.Getenv("WEIR_FAULTS") == "long"

// program is the daemon, built from the tree.
var program string

var results = &report.Report{
	Date:    time.Now(),
	Machine: fmt.Sprintf("%d cores, shared with others, %s, %s/%s", runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH),
}

// rows are all that the page must have.
var rows = []string{"F1", "F2", "F3", "F4", "F4b", "F5", "F6", "F6b", "F7", "F7b", "F8", "F9", "F10", "F11", "F12", "F13", "F14", "F14b", "F15", "F16", "F16b", "F17", "F18", "F18b", "F18c", "F18d", "F20", "F22", "F23", "F23b", "F24", "F24b", "F25", "F26", "F27", "F28", "F28b", "F29", "flapping"}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "faults")
	if err == nil {
		program, err = rig.Build("..", dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, append(ignored, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir) // what is left in the system's directory for such files does no harm
		if err := document(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
		os.Exit(code)
	}))...)
}

// ignored are goroutines of Toxiproxy, which loses some when a toxic is taken off a
// connection that is being closed.
var ignored = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),
	goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"),
	goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).write"),
}

// document writes the page, if every row was tried as the page says.
func document() error {
	if !long || !slices.Equal(results.IDs(), rows) {
		return nil
	}
	f, err := os.Create(filepath.Join("..", "docs", "faults.md"))
	if err != nil {
		return err
	}
	defer f.Close()
	return results.WriteMarkdown(f)
}
