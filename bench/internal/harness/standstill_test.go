package harness

import (
	"maps"
	"os"
	"testing"
)

// The kernel kills a server when the thread that has started it ends, so no thread may end with a standstill.
func TestThreadsOutliveStandstills(t *testing.T) {
	seen := map[string]bool{}
	for range 20 {
		s := watchStandstill()
		maps.Copy(seen, threads(t))
		s.end()
	}
	left := threads(t)
	for id := range seen {
		if !left[id] {
			t.Errorf("thread %s of %d has ended", id, len(seen))
		}
	}
}

func threads(t *testing.T) map[string]bool {
	t.Helper()
	list, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, each := range list {
		ids[each.Name()] = true
	}
	return ids
}
