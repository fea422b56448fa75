package respapi

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"
)

// run runs one of Redis' own programs against a server and returns what it prints.
func run(t testing.TB, address, input, program string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("there is no %s, which scripts/setup.sh installs with redis-server: %v", program, err)
	}
	host, port, _ := net.SplitHostPort(address)
	ctx, cancel := contextWithTimeout(15 * time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, append([]string{"-h", host, "-p", port}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
	return string(out)
}

func TestRedisCLI(t *testing.T) {
	f := newFixture(t, "alice")
	address := f.listen(t)
	const lines = "PING\nWEIR.CHECK tight k\nCL.THROTTLE \"a b\" 15 30 60\nGET a\nWEIR.RESERVE tight k 2\n"
	const want = "PONG\n1\n2\n1\n0\n500\n0\n16\n15\n-1\n2\nERR unknown command 'GET'\n\n\n0\n2\n1\n500\n500\n"
	for _, args := range [][]string{
		{"--user", "alice", "--pass", tokenOf("alice")},
		{"--user", "alice", "--pass", tokenOf("alice"), "-3"},
		{"-a", tokenOf("alice")},
	} {
		args = append(args, "--no-auth-warning")
		if diff := cmp.Diff(want, run(t, address, lines, "redis-cli", args...)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", args, diff)
		}
		f.clock.Pass(time.Hour)
	}
	if got := run(t, address, "", "redis-cli", "PING"); !strings.HasPrefix(got, "NOAUTH") {
		t.Errorf("without a token: %q", got)
	}
	const wrong = "AUTH failed: WRONGPASS invalid username-password pair or user is disabled.\n"
	if got := run(t, address, "", "redis-cli", "-a", "wrong", "--no-auth-warning", "PING"); !strings.HasPrefix(got, wrong+"NOAUTH") {
		t.Errorf("with a wrong token: %q", got)
	}
	for _, command := range []string{"INFO", "COMMAND", "COMMAND DOCS", "CLIENT LIST"} {
		got := run(t, address, command+"\n", "redis-cli", "-a", tokenOf("alice"), "--no-auth-warning")
		if len(got) < 20 || strings.HasPrefix(got, "ERR") {
			t.Errorf("%s: %q", command, got)
		}
	}
}

// redis-cli has modes of its own, some for commands that there are not. Those end with
// its response.
func TestRedisCLIModes(t *testing.T) {
	address := newFixture(t).listen(t)
	pipe := run(t, address, strings.Repeat(multibulk("WEIR.CHECK", "default", "k"), 100), "redis-cli", "--pipe")
	if !strings.Contains(pipe, "errors: 0, replies: 100") {
		t.Errorf("--pipe: %q", pipe)
	}
	if got := run(t, address, "", "redis-cli", "WEIR.PEEK", "default", "k"); !strings.HasPrefix(got, "0\n100\n0\n") {
		t.Errorf("after 100 checks: %q", got)
	}
	for command, want := range map[string]string{
		"SUBSCRIBE news":  "ERR unknown command 'SUBSCRIBE'",
		"MONITOR":         "ERR unknown command 'MONITOR'",
		"HELLO 4":         "NOPROTO unsupported protocol version",
		"CONFIG GET save": "ERR CONFIG is not available",
		"AUTH x":          "ERR AUTH <password> called without any password configured",
	} {
		if got := run(t, address, command+"\nPING\n", "redis-cli"); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "\nPONG\n") {
			t.Errorf("%s: %q, want %q and PONG", command, got, want)
		}
	}
}

func TestRedisBenchmark(t *testing.T) {
	address, closed := realFixture(t).listen(t), newFixture(t, "alice").listen(t)
	credentials := []string{"--user", "alice", "-a", tokenOf("alice"), "-n", "1000", "-q", "PING"}
	if got := run(t, closed, "", "redis-benchmark", credentials...); !strings.Contains(got, "requests per second") || strings.Contains(got, "Error") {
		t.Errorf("with a token: %s", got)
	}
	for _, command := range [][]string{
		{"-t", "ping"},
		{"-P", "16", "WEIR.CHECK", "default", "user:__rand_int__"},
		{"-P", "16", "CL.THROTTLE", "user:__rand_int__", "15", "30", "60"},
		{"-P", "1000", "ECHO", "hello"},
	} {
		args := append([]string{"-n", "10000", "-c", "20", "-r", "1000", "-q"}, command...)
		if got := run(t, address, "", "redis-benchmark", args...); !strings.Contains(got, "requests per second") || strings.Contains(got, "Error") {
			t.Errorf("%q: %s", command, got)
		}
	}
}

// rueidis with nothing set but the address, then with a client and RESP2.
func TestRueidis(t *testing.T) {
	open, closed := newFixture(t).listen(t), newFixture(t, "alice").listen(t)
	for name, option := range map[string]rueidis.ClientOption{
		"as it is":    {InitAddress: []string{open}},
		"with a name": {InitAddress: []string{closed}, Username: "alice", Password: tokenOf("alice"), ClientName: "test"},
		"token alone": {InitAddress: []string{closed}, Password: tokenOf("alice")},
		"RESP2":       {InitAddress: []string{open}, AlwaysRESP2: true, DisableCache: true},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := rueidis.NewClient(option)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			ctx, cancel := contextWithTimeout(10 * time.Second)
			defer cancel()
			useRueidis(ctx, t, client, name)
		})
	}
	if client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{closed}, Password: "wrong"}); err == nil {
		client.Close()
		t.Error("a wrong token connects")
	}
}

func useRueidis(ctx context.Context, t *testing.T, client rueidis.Client, key string) {
	t.Helper()
	commands := make(rueidis.Commands, 50)
	for i := range commands {
		commands[i] = client.B().Arbitrary("WEIR.CHECK", "default").Keys(key).Build()
	}
	for i, r := range client.DoMulti(ctx, commands...) {
		got, err := r.AsIntSlice()
		want := []int64{1, 100, int64(99 - i), 0, int64(10 * (i + 1))}
		if err != nil || !cmp.Equal(got, want) {
			t.Fatalf("check %d: %v, %v; want %v", i, got, err, want)
		}
	}
	got, err := client.Do(ctx, client.B().Arbitrary("CL.THROTTLE").Keys(key).Args("15", "30", "60").Build()).AsIntSlice()
	if want := []int64{0, 16, 15, -1, 2}; err != nil || !cmp.Equal(got, want) {
		t.Errorf("throttle: %v, %v; want %v", got, err, want)
	}
	reserved, err := client.Do(ctx, client.B().Arbitrary("WEIR.RESERVE", "tight").Keys(key).Args("3").Build()).ToArray()
	if err != nil || len(reserved) != 6 || !reserved[0].IsNil() {
		t.Errorf("reserve: %v, %v", reserved, err)
	}
	if err := client.Do(ctx, client.B().Get().Key("a").Build()).Error(); err == nil || !strings.Contains(err.Error(), "unknown command") {
		t.Errorf("get: %v", err)
	}
}
