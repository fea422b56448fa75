package redistest

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// A wait ends, and says what was missing.
func TestAwait(t *testing.T) {
	t.Parallel()
	asked := 0
	r := record(func(t testing.TB) {
		await(t, "the moon", 500*time.Millisecond, func() error { asked++; return errors.New("not up yet") })
	})
	if want := "waited 500ms for the moon: not up yet"; !r.failed || !strings.Contains(r.text, want) || asked < 2 {
		t.Errorf("after %d questions: failed = %v, %q; want %q", asked, r.failed, r.text, want)
	}
}
