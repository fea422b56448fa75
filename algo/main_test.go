package algo

import (
	"flag"
	"os"
	"testing"
)

// update rewrites testdata/vectors from the models.
var update = flag.Bool("update", false, "rewrite the shared vectors from the models")

// TestMain sets how many cases each property tries: 100, or 10,000 with
// WEIR_TEST=all. -rapid.checks on the command line goes before both.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		checks := "100"
		if thorough() {
			checks = "10000"
		}
		if err := flag.Set("rapid.checks", checks); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func thorough() bool { return os.Getenv("WEIR_TEST") == "all" }
