package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/redistest"
)

// slotConfig is a configuration with a policy of one slot.
const slotConfig = `policies:
  default: {limits: [{rate: 100, per: 1h}]}
  slot: {limits: [{rate: 1, algorithm: concurrency}]}
`

// reservation is what /v1/reserve answers.
type reservation struct {
	answer
	ID string `json:"id"`
}

// reserve reserves the slot, and checks whether it was free.
func (d *daemon) reserve(t *testing.T, key string, free bool) (r reservation) {
	t.Helper()
	body := fmt.Sprintf(`{"policy":"slot","key":%q,"ttl_ms":60000}`, key)
	d.post(t, "/v1/reserve", body, &r)
	if r.Allowed != free {
		t.Errorf("%s: %+v, want allowed %t", body, r, free)
	}
	return r
}

// commit gives a slot back.
func (d *daemon) commit(t *testing.T, id string) {
	t.Helper()
	d.post(t, "/v1/commit", fmt.Sprintf(`{"id":%q}`, id), &struct{}{})
}

func (d *daemon) post(t *testing.T, path, body string, into any) {
	t.Helper()
	resp, err := oneShot.Post(d.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d, %+v, %v", path, resp.StatusCode, into, err)
	}
}

// A slot in Redis is free as soon as it was given back: at once on the daemon that gave it
// back, and shortly after on the other, whichever was refused before.
func TestSlotOverRedis(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(file, []byte(slotConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	redis := redistest.Start(t)
	a := slowDaemon(t, redis.Addr(), "-c", file)
	b := slowDaemon(t, redis.Addr(), "-c", file)
	for range 3 {
		first := a.reserve(t, "alice", true)
		a.reserve(t, "alice", false)
		a.commit(t, first.ID)
		again := a.reserve(t, "alice", true)
		b.reserve(t, "alice", false)
		a.commit(t, again.ID)
		var other reservation
		tries := 0
		eventually(t, "the other daemon gets the slot", func() bool {
			tries++
			b.post(t, "/v1/reserve", `{"policy":"slot","key":"alice"}`, &other)
			return other.Allowed
		})
		b.commit(t, other.ID)
		if tries > 20 { // a denial of slots is cached for 10 ms
			t.Errorf("the other daemon had the slot at its try %d, 5 ms apart", tries)
		}
	}
}
