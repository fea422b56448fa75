package cli

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/golden"
)

func TestHelp(t *testing.T) {
	tests := map[string][]string{
		"weir.golden":                  {"--help"},
		"weir-serve.golden":            {"serve", "--help"},
		"weir-check.golden":            {"check", "--help"},
		"weir-keys.golden":             {"keys", "--help"},
		"weir-keys-get.golden":         {"keys", "get", "--help"},
		"weir-keys-reset.golden":       {"keys", "reset", "--help"},
		"weir-override.golden":         {"override", "--help"},
		"weir-override-set.golden":     {"override", "set", "--help"},
		"weir-override-list.golden":    {"override", "list", "--help"},
		"weir-override-remove.golden":  {"override", "remove", "--help"},
		"weir-guard.golden":            {"guard", "--help"},
		"weir-guard-subject.golden":    {"guard", "subject", "--help"},
		"weir-guard-pardon.golden":     {"guard", "pardon", "--help"},
		"weir-guard-suggest.golden":    {"guard", "suggest", "--help"},
		"weir-budgets.golden":          {"budgets", "--help"},
		"weir-budgets-resume.golden":   {"budgets", "resume", "--help"},
		"weir-upstreams.golden":        {"upstreams", "--help"},
		"weir-upstreams-resume.golden": {"upstreams", "resume", "--help"},
		"weir-config.golden":           {"config", "--help"},
		"weir-config-validate.golden":  {"config", "validate", "--help"},
		"weir-config-print.golden":     {"config", "print", "--help"},
		"weir-config-schema.golden":    {"config", "schema", "--help"},
		"weir-config-import.golden":    {"config", "import", "--help"},
		"weir-load.golden":             {"load", "--help"},
		"weir-mock.golden":             {"mock", "--help"},
		"weir-mock-jsonrpc.golden":     {"mock", "jsonrpc", "--help"},
		"weir-version.golden":          {"version", "--help"},
	}
	for name, args := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := Main(context.Background(), args, &stdout, &stderr); code != exitOK || stderr.Len() > 0 {
				t.Fatalf("exit code %d, stderr %q", code, stderr.String())
			}
			golden.Check(t, filepath.Join("testdata/help", name), stdout.Bytes())
		})
	}
}

// Each command has a help of its own, however it is asked for.
func TestHelpOfEachCommand(t *testing.T) {
	help := func(args ...string) string {
		var stdout, stderr bytes.Buffer
		if code := Main(context.Background(), args, &stdout, &stderr); code != exitOK || stderr.Len() > 0 {
			t.Errorf("%v: exit code %d, stderr %q", args, code, stderr.String())
		}
		return stdout.String()
	}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		args := strings.Fields(cmd.CommandPath())[1:]
		text := help(append(args, "--help")...)
		if usage := "Usage:\n  " + cmd.CommandPath(); !strings.Contains(text, usage) {
			t.Errorf("weir %s --help does not have %q: %s", strings.Join(args, " "), usage, text)
		}
		if other := help(append([]string{"help"}, args...)...); other != text {
			t.Errorf("weir help %s differs from --help: %s", strings.Join(args, " "), other)
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRoot())
}

func TestErrorsAreOneLine(t *testing.T) {
	const aboutRedis = "weir: --sentinel, --consistency, --on-error and --require-store: are about Redis; add --redis ADDRESS; see 'weir serve --help'\n"
	tests := []struct {
		args string
		code int
		want string
	}{
		{"sevre", exitUsage, "weir: unknown command \"sevre\"; did you mean 'weir serve'?\n"},
		{"frobnicate", exitUsage, "weir: unknown command \"frobnicate\"; see 'weir --help'\n"},
		{"completion elvish", exitUsage, "weir: unknown command \"elvish\"; see 'weir completion --help'\n"},
		{"snapshot --help", exitUsage, "weir: unknown command \"snapshot\"; see 'weir --help'\n"},
		{"snapshot -h", exitUsage, "weir: unknown command \"snapshot\"; see 'weir --help'\n"},
		{"help snapshot", exitUsage, "weir: unknown command \"snapshot\"; see 'weir --help'\n"},
		{"config prnt --help", exitUsage, "weir: unknown command \"prnt\"; did you mean 'weir config print'?\n"},
		{"help config prnt", exitUsage, "weir: unknown command \"prnt\"; did you mean 'weir config print'?\n"},
		{"--frob", exitUsage, "weir: unknown flag: --frob; see 'weir --help'\n"},
		{"serve --htp x", exitUsage, "weir: unknown flag: --htp; see 'weir serve --help'\n"},
		{"serve --http", exitUsage, "weir: flag needs an argument: --http; see 'weir serve --help'\n"},
		{"serve now", exitUsage, "weir: 'weir serve' takes no arguments, but there is \"now\"; see 'weir serve --help'\n"},
		{"serve --log-format xml", exitUsage, "weir: --log-format: log.format: \"xml\" must be text or json; see 'weir serve --help'\n"},
		{"serve --max-keys 0", exitUsage, "weir: --max-keys: store.max_keys: 0 must be between 1 and 1000000000; see 'weir serve --help'\n"},
		{"serve --max-keys 1000000001", exitUsage, "weir: --max-keys: store.max_keys: 1000000001 must be between 1 and 1000000000; see 'weir serve --help'\n"},
		{"serve --max-keys many", exitUsage, "weir: --max-keys: store.max_keys: \"many\" must be a whole number in digits, such as 1000; see 'weir serve --help'\n"},
		{"serve --snapshot=", exitUsage, "weir: --snapshot: must not be empty; leave it out for the default; see 'weir serve --help'\n"},
		{"serve --snapshot-every 5s", exitUsage, "weir: --snapshot-every: says how often, but nothing says where; add --snapshot FILE; see 'weir serve --help'\n"},
		{"serve --snapshot x --snapshot-every 999ms", exitUsage, "weir: --snapshot-every: store.snapshot.every: 999ms must be at least 1s; see 'weir serve --help'\n"},
		{"serve --snapshot none/weir.snap", exitFailure, "weir: snapshot \"none/weir.snap\": there is no directory \"none\"; create it\n"},
		{"serve --snapshot testdata", exitFailure, "weir: memstore: snapshot: read testdata: is a directory; make it a file that the daemon can read, or rename it to start empty\n"},
		{"serve --http 0.0.0.0:8080", exitUsage, "weir: --http: listen.http.address: is not loopback, so any host that reaches it could use it: add clients, or set auth: none; see 'weir serve --help'\n"},
		{"serve --redis=", exitUsage, "weir: --redis: must not be empty; leave it out for the default; see 'weir serve --help'\n"},
		{"serve --redis 127.0.0.1:1 --max-keys 5", exitUsage, "weir: --redis: counts are kept there; --snapshot and --max-keys are for memory; see 'weir serve --help'\n"},
		{"serve --sentinel mymaster", exitUsage, aboutRedis},
		{"serve --sentinel=", exitUsage, "weir: --sentinel: must not be empty; leave it out for the default; see 'weir serve --help'\n"},
		{"serve --consistency exact", exitUsage, aboutRedis},
		{"serve --on-error local", exitUsage, aboutRedis},
		{"serve --require-store", exitUsage, aboutRedis},
		{"serve --redis 127.0.0.1:1 --sentinel=", exitUsage, "weir: --sentinel: must not be empty; leave it out for the default; see 'weir serve --help'\n"},
		{"serve --redis 127.0.0.1:1 --consistency eventual", exitUsage, "weir: --consistency: store.redis.consistency: \"eventual\" must be exact, leased or async; see 'weir serve --help'\n"},
		{"serve --redis 127.0.0.1:1 --on-error panic", exitUsage, "weir: --on-error: store.redis.on_error: \"panic\" must be local, open or closed; see 'weir serve --help'\n"},
		{"serve --redis 127.0.0.1:1 --on-error default", exitUsage, "weir: --on-error: store.redis.on_error: \"default\" must be local, open or closed; see 'weir serve --help'\n"},
		{"serve --redis 127.0.0.1:1,127.0.0.1:2 --sentinel mymaster --require-store", exitFailure, "weir: redis: redisconn: Sentinel 127.0.0.1:1: connection refused; redisconn: Sentinel 127.0.0.1:2: connection refused\n"},
		{"load", exitUsage, "weir: there is no URL; see 'weir load --help'\n"},
		{"load http://127.0.0.1:1/", exitUsage, "weir: there is no --rate; see 'weir load --help'\n"},
		{"load --rate 0 http://127.0.0.1:1/", exitUsage, "weir: --rate: \"0\": \"0\" is not a rate such as 500, 2.5 or 5k; see 'weir load --help'\n"},
		{"load --rate NaN http://127.0.0.1:1/", exitUsage, "weir: --rate: \"NaN\": \"NaN\" is not a rate such as 500, 2.5 or 5k; see 'weir load --help'\n"},
		{"load --rate 5,0.5 http://127.0.0.1:1/", exitUsage, "weir: --rate: \"5,0.5\": \"0.5\" is not a burst ratio above 1, such as 1.1; see 'weir load --help'\n"},
		{"load --rate 5 --for 0s http://127.0.0.1:1/", exitUsage, "weir: load: for 0s: want more than 0 and at most 168h0m0s; see 'weir load --help'\n"},
		{"load --rate 5 --connections 0 http://127.0.0.1:1/", exitUsage, "weir: --connections 0: must be between 1 and 10000; see 'weir load --help'\n"},
		{"load --rate 5 --arrivals late http://127.0.0.1:1/", exitUsage, "weir: --arrivals late: must be constant or poisson; see 'weir load --help'\n"},
		{"load --rate 5 --protocol http9 http://127.0.0.1:1/", exitUsage, "weir: --protocol: \"http9\" is not a protocol; known are auto, http1, http2, grpc, jsonrpc, resp; see 'weir load --help'\n"},
		{"load --rate 5 --max-errors 2 http://127.0.0.1:1/", exitUsage, "weir: --max-errors 2: must be a share such as 1% or 0.01; see 'weir load --help'\n"},
		{"load --rate 5 --body @none http://127.0.0.1:1/", exitUsage, "weir: --body: open none: no such file or directory; see 'weir load --help'\n"},
		{"load --rate 5 http://192.0.2.1/", exitUsage, "weir: http://192.0.2.1:80 is not on this machine; add --i-own-this if it is yours to load; see 'weir load --help'\n"},
		{"load --rate 5 --svg none/x.svg http://127.0.0.1:1/", exitFailure, "weir: open none/x.svg: no such file or directory\n"},
		{"mock infura", exitUsage, "weir: unknown command \"infura\"; see 'weir mock --help'\n"},
		{"mock jsonrpc now", exitUsage, "weir: 'weir mock jsonrpc' takes no arguments, but there is \"now\"; see 'weir mock jsonrpc --help'\n"},
		{"mock jsonrpc --preset infura", exitUsage, "weir: --preset: \"infura\": there are alchemy and generic; see 'weir mock jsonrpc --help'\n"},
		{"mock jsonrpc --listen 0.0.0.0:8545", exitUsage, "weir: --listen 0.0.0.0:8545: must be an address of this machine alone, such as 127.0.0.1:8545: whoever reaches a mock can change what it does; see 'weir mock jsonrpc --help'\n"},
		{"mock jsonrpc --rate -5", exitUsage, "weir: --rate: -5: must be between 0 and 100000; see 'weir mock jsonrpc --help'\n"},
		{"mock jsonrpc --per-minute 5", exitUsage, "weir: --per-minute: is for --preset generic; the preset alchemy has --rate; see 'weir mock jsonrpc --help'\n"},
		{"mock jsonrpc --chain-id 0", exitUsage, "weir: --chain-id 0: must be more than 0; see 'weir mock jsonrpc --help'\n"},
		{"mock jsonrpc --latency -1s", exitUsage, "weir: --latency: -1s: must be between 0 and 10m0s; see 'weir mock jsonrpc --help'\n"},
		{"mock jsonrpc --keys a=k1,k1", exitUsage, "weir: --keys: \"k1\": is a key of account \"a\" already; see 'weir mock jsonrpc --help'\n"},
		{"mock jsonrpc --keys k1,,k2", exitUsage, "weir: --keys: \"\": must be a name that no other account has; see 'weir mock jsonrpc --help'\n"},
		{"serve --http 8080", exitUsage, "weir: --http: listen.http.address: must be host:port, such as 127.0.0.1:8080, or unix:/path; see 'weir serve --help'\n"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // for a daemon that starts all the same
			defer cancel()
			code := Main(ctx, strings.Fields(tt.args), &stdout, &stderr)
			if code != tt.code || stderr.String() != tt.want || stdout.Len() > 0 {
				t.Errorf("exit code %d, want %d\nstderr %s want   %s stdout %q", code, tt.code, stderr.String(), tt.want, stdout.String())
			}
		})
	}
}

// TestServeEndsWithItsContext runs the daemon in this process, where goleak sees
// what it leaves.
func TestServeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var stdout, stderr bytes.Buffer
	code := Main(ctx, []string{"serve", "--http", "localhost:0", "--grpc", "localhost:0", "--resp", "off", "--log-format", "json"}, writerFunc(func(b []byte) {
		stdout.Write(b)
		cancel() // as soon as it says that it listens
	}), &stderr)
	if code != exitOK || !strings.Contains(stdout.String(), "is listening on http://") {
		t.Errorf("exit code %d, stdout %q", code, stdout.String())
	}
	if !strings.Contains(stderr.String(), `"msg":"stopped"`) {
		t.Errorf("log = %q", stderr.String())
	}
}

// A daemon that cannot listen says which of its listeners it is.
func TestServeNamesTheListener(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	taken := other.Addr().String()
	for flag, want := range map[string]string{
		"--http":  "address already in use; set another address by --http, or listen.http of the configuration\n",
		"--grpc":  "address already in use; set another address, or off, by --grpc, or listen.grpc of the configuration\n",
		"--resp":  "address already in use; set another address, or off, by --resp, or listen.resp of the configuration\n",
		"--admin": "address already in use; set another address by --admin, or listen.admin of the configuration\n",
	} {
		var stdout, stderr bytes.Buffer
		code := Main(context.Background(), []string{"serve", "--http", "127.0.0.1:0", "--grpc", "off", "--resp", "off", flag, taken}, &stdout, &stderr)
		if code != exitFailure || !strings.HasSuffix(stderr.String(), want) || stdout.Len() > 0 {
			t.Errorf("%s: exit code %d, stdout %q, stderr %s want %s", flag, code, stdout.String(), stderr.String(), want)
		}
	}
	var stdout, stderr bytes.Buffer
	code := Main(context.Background(), []string{"serve", "--http", "127.0.0.1:0", "--grpc", "off", "--resp", "unix:/nothing/there"}, &stdout, &stderr)
	if want := "; the address is that of --resp, or listen.resp of the configuration\n"; code != exitFailure || !strings.HasSuffix(stderr.String(), want) {
		t.Errorf("exit code %d, stderr %s want %s", code, stderr.String(), want)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}

func TestVersionText(t *testing.T) {
	info := &debug.BuildInfo{
		Main: debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef"},
			{Key: "vcs.time", Value: "2026-05-17T12:00:00Z"},
			{Key: "vcs.modified", Value: "true"},
		},
	}
	tests := []struct {
		name, linked string
		info         *debug.BuildInfo
		want         string
	}{
		{"nothing known", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "weir  (go1 linux/amd64)"},
		{"recorded by Go", "", info, "weir v1.2.3 (go1 linux/amd64, commit 0123456789ab, modified)"},
		{"set by the linker", "v9.9.9", info, "weir v9.9.9 (go1 linux/amd64, commit 0123456789ab, modified)"},
	}
	for _, tt := range tests {
		v := buildVersion{Version: tt.linked, Go: "go1", OS: "linux", Arch: "amd64"}
		v.fill(tt.info)
		if got := v.String(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
