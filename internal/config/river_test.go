package config

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/golden"
	"github.com/weirlimit/weir/server"
	"github.com/weirlimit/weir/store/memstore"
)

// Beside each file of testdata/river is what becomes of it: ours and the notes, or the problems.
func TestImportRiver(t *testing.T) {
	names, err := filepath.Glob("testdata/river/*.yaml")
	if err != nil || len(names) < 7 {
		t.Fatal(len(names), err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			ours, notes, err := ImportRiver(filepath.Base(name), data, environOf(string(data)))
			if err != nil {
				fmt.Fprintln(&b, err)
			}
			b.Write(ours)
			for _, n := range notes {
				fmt.Fprintln(&b, "#", n)
			}
			golden.Check(t, strings.TrimSuffix(name, ".yaml")+".golden", []byte(b.String()))
			if err != nil {
				return
			}
			if _, err := Parse("ours.yaml", ours, nil, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// riverSample is what docs/examples/river.yaml says: the most that is admitted at once, 0 for no limit.
var riverSample = map[string]int64{
	"/river.StreamService/CreateStream": 10, "/river.StreamService/CreateMediaStream": 5, "/river.StreamService/AddEvent": 100,
	"/river.StreamService/AddMediaEvent": 20, "/river.StreamService/GetStream": 1000, "/river.StreamService/GetStreamEx": 500,
	"/river.StreamService/GetMiniblocks": 200, "/river.StreamService/GetLastMiniblockHash": 2000, "/river.AppRegistryService/Register": 1,
	"/river.AppRegistryService/SetAppMetadata": 10, "/river.AppRegistryService/GetAppMetadata": 0, "/river.AppRegistryService/GetStatus": 0,
	"/river.AppRegistryService/ValidateBotName": 0, "/river.StreamService/SyncStreams": 5, "/river.StreamService/AddStreamToSync": 50,
	"/river.StreamService/RemoveStreamFromSync": 100, "/river.StreamService/ModifySync": 30,
}

// The example is what the import makes of the sample, and a daemon that is started with it has the limits of
// the sample.
func TestRiverExample(t *testing.T) {
	const ours = repository + "/docs/examples/river.yaml"
	data, err := os.ReadFile(repository + "/docs/examples/river-ratelimits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	imported, _, err := ImportRiver("river-ratelimits.yaml", data, nil)
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, ours, imported)
	c, err := Load(ours, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(c.File.Guard.Endpoints); n != 17 {
		t.Errorf("%d endpoints", n)
	}
	url := serveRiver(t, c)
	for endpoint, want := range riverSample {
		if got := admitRiver(t, url, endpoint); !got.Allowed || got.Limit != want {
			t.Errorf("%s: %+v, want a limit of %d", endpoint, got, want)
		}
	}
	if got := admitRiver(t, url, "/river.StreamService/Info"); got.Limit != 50 || got.Policy != "guard.default" || got.Remaining != 49 {
		t.Errorf("an endpoint without limits of its own: %+v", got)
	}
	again := admitRiver(t, url, "/river.AppRegistryService/Register")
	if again.Allowed || again.RetryAfter <= 59*60*1000 || again.RetryAfter > 60*60*1000 {
		t.Errorf("a second registration: %+v", again)
	}
}

// serveRiver starts a server, and returns its URL.
func serveRiver(t *testing.T, c *Config) string {
	t.Helper()
	table, err := memstore.New(c.Store.Memory)
	if err != nil {
		t.Fatal(err)
	}
	cfg := c.Server()
	listens := make(chan string, 1)
	cfg.HTTP.Address, cfg.GRPC, cfg.RESP = "127.0.0.1:0", server.Listener{}, server.Listener{}
	cfg.Limiter, cfg.Log, cfg.OnListen = table, slog.New(slog.DiscardHandler), func(b server.Bound) { listens <- "http://" + b.HTTP.String() }
	srv, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	select {
	case url := <-listens:
		return url
	case err := <-ended:
		t.Fatal(err)
	}
	return ""
}

type riverAnswer struct {
	Allowed    bool   `json:"allowed"`
	Policy     string `json:"policy"`
	Limit      int64  `json:"limit"`
	Remaining  int64  `json:"remaining"`
	RetryAfter int64  `json:"retry_after_ms"`
}

func admitRiver(t *testing.T, url, endpoint string) (a riverAnswer) {
	t.Helper()
	resp, err := http.Post(url+"/v1/guard", "application/json", strings.NewReader(fmt.Sprintf(`{"path":%q,"address":"192.0.2.1","principal":"0xAB"}`, endpoint)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d, %s, %v", resp.StatusCode, text, err)
	}
	if err := json.Unmarshal(text, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// Whatever is imported can be loaded.
func FuzzImportRiver(f *testing.F) {
	for _, pattern := range []string{"testdata/river/*.yaml", repository + "/docs/examples/river-ratelimits.yaml"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data, "RIVER_RATELIMITS_GLOBALLIMITS_RATE", "5")
			f.Add(data, "RIVER_RATELIMITS_STREAMCREATION_RATE", "5")
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, name, value string) {
		ours, _, err := ImportRiver("node.yaml", data, []string{name + "=" + value})
		if err != nil {
			checkError(t, err)
			return
		}
		if _, err := Parse("weir.yaml", ours, nil, nil); err != nil {
			t.Fatalf("%v\nin what was imported:\n%s", err, ours)
		}
	})
}
