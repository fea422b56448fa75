package weir

import (
	"errors"
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// asDecision returns the refusal in err as a decision.
func asDecision(d Decision, err error) (Decision, error) {
	if denied, ok := errors.AsType[*DeniedError](err); ok {
		return denied.Decision, nil
	}
	return d, err
}

// long says whether the long forms of tests run: make test-all.
var long = os.Getenv("WEIR_TEST") == "all"

func TestMain(m *testing.M) {
	flag.Parse()
	if !given("rapid.checks") && long {
		_ = flag.Set("rapid.checks", "10000")
	}
	goleak.VerifyTestMain(m)
}

func given(name string) (found bool) {
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}
