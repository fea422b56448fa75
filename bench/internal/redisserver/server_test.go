package redisserver

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirlimit/weir/bench/internal/harness"
)

func TestServerEnds(t *testing.T) {
	s, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	if used, err := s.CPUTime(); err != nil || used < 0 {
		t.Errorf("it used %v, error %v", used, err)
	}
	if _, err := s.info("Server", "none"); !errors.Is(err, errNoField) {
		t.Errorf("error %v", err)
	}
	s.Stop()
	if !s.hasEnded() {
		t.Error("it has not ended")
	}
	if v := Version(); !strings.HasPrefix(v, "redis-server ") {
		t.Errorf("its version is %q", v)
	}
}

func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var missing harness.Missing
	if _, err := Start(); !errors.As(err, &missing) {
		t.Errorf("error %v", err)
	}
	if v := Version(); v != "no redis-server" {
		t.Errorf("its version is %q", v)
	}
}
