package services

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/bench/internal/harness"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
)

var tiny = Sizes{Keys: 120, Most: 120, Rounds: 1, PerRun: 10 * time.Millisecond, NoPeer: true}

// TestSurveys runs every survey briefly and checks that the answers are plausible.
func TestSurveys(t *testing.T) {
	for _, s := range Surveys(tiny) {
		t.Run(s.Name, func(t *testing.T) {
			a, err := harness.Ask(s, nil)
			if err != nil {
				t.Fatal(err)
			}
			if a.Missing != "" {
				t.Fatal(a.Missing)
			}
			for i, sub := range s.Subjects {
				for k, f := range s.Figures {
					if v := a.Values[i][k]; !plausible(f, v) {
						t.Errorf("%s, %s: %v %s", sub.Name, f.Name, v, f.Unit)
					}
				}
			}
		})
	}
}

// plausible: missing contenders are not compared with, and ticks of processor time may be
// none in such a short run.
func plausible(f harness.Figure, v float64) bool {
	mayBeZero := f.Name == timesRatelimit || f.Name == "more with keys" || strings.Contains(f.Name, "CPU")
	return v > 0 && v < 1e7 || v == 0 && mayBeZero
}

func TestGoals(t *testing.T) {
	type bound struct{ least, most float64 }
	found := make(map[string]bound)
	for _, survey := range Surveys(Whole) {
		for _, f := range survey.Figures {
			for _, sub := range survey.Subjects {
				if sub.Judged(f) {
					found[strings.Join([]string{strings.TrimPrefix(survey.Name, "services, "), sub.Name, f.Name}, ": ")] = bound{f.AtLeast, f.AtMost}
				}
			}
		}
	}
	want := map[string]bound{
		"100,000 keys, 64 callers: weir Check, memory: times ratelimit":                     {least: 2.2},
		"100,000 keys, 64 callers: weir Envoy, memory: times ratelimit":                     {least: 2.2},
		"1 hot key, 16 callers: weir Check, Redis leased: times memory":                     {least: 0.8},
		"1 hot key, 64 callers: weir Check, Redis leased: times memory":                     {least: 0.8},
		"Redis protocol, 16 callers: weir WEIR.CHECK, memory: times PING":                   {least: 0.9},
		"Redis protocol, 16 callers: weir CL.THROTTLE, memory: times PING":                  {least: 0.9},
		"Redis protocol, 16 callers: weir WEIR.CHECK, memory: times ratelimit":              {least: 5},
		"Redis protocol, 16 callers: weir CL.THROTTLE, memory: times ratelimit":             {least: 5},
		"Redis protocol, pipelines of 16, 16 callers: weir WEIR.CHECK, memory: times PING":  {least: 0.7},
		"Redis protocol, pipelines of 16, 16 callers: weir CL.THROTTLE, memory: times PING": {least: 0.7},
		"batches of 100, 16 callers: weir CheckBatch of 100: times single":                  {least: 40},
		"memory of 1,000,000 keys: weir, memory: more with keys":                            {most: 64},
	}
	for _, shape := range []string{"1 hot key, 16 callers: ", "1 hot key, 64 callers: ", "100,000 keys, 16 callers: ", "100,000 keys, 64 callers: "} {
		for _, name := range []string{checkName, envoyName} {
			want[shape+name+": times empty gRPC"] = bound{least: 0.85}
			want[shape+name+": times its CPU"] = bound{most: 1.2}
		}
	}
	if !maps.Equal(found, want) {
		t.Errorf("goals %v\nwant %v", found, want)
	}
}

// newPlace returns a site that ends with the test.
func newPlace(t *testing.T) *site {
	t.Helper()
	place, err := newSite(false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := place.close(); err != nil {
			t.Error(err)
		}
	})
	return place
}

// A floor's answers are as long as weir's, but for a few digits.
func TestFloorsAnswerAsMuch(t *testing.T) {
	place := newPlace(t)
	sizes := make(map[kind][]int)
	for _, k := range []kind{memory, empty} {
		one, err := place.server(k)
		if err != nil {
			t.Fatal(err)
		}
		sizes[k] = answerSizes(t, one)
	}
	for i, call := range []string{"Check", "ShouldRateLimit", "WEIR.CHECK"} {
		if d := sizes[memory][i] - sizes[empty][i]; d < -4 || d > 4 {
			t.Errorf("%s: weir answers %d bytes, the floor %d", call, sizes[memory][i], sizes[empty][i])
		}
	}
}

// answerSizes returns the bytes of a server's answers.
func answerSizes(t *testing.T, one *server) []int {
	t.Helper()
	ctx := context.Background()
	conn, err := grpc.NewClient("passthrough:///"+one.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	key := newKeys(1)[0]
	checked, err := weirv1.NewLimiterServiceClient(conn).Check(ctx, &weirv1.CheckRequest{Policy: plenty, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	entries := []*rlcommon.RateLimitDescriptor_Entry{{Key: plenty, Value: key}}
	limited, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{
		Domain: domain, Descriptors: []*rlcommon.RateLimitDescriptor{{Entries: entries}},
	})
	if err != nil {
		t.Fatal(err)
	}
	all, err := overRESP(check)(one, plenty, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer all.close()
	if _, err := all.list[0].ask(ctx, []string{key}); err != nil {
		t.Fatal(err)
	}
	return []int{proto.Size(checked), proto.Size(limited), len(all.list[0].(*respAsker).answer)}
}

// TestKeysAreKeptApart makes sure that each way to ask charges the key that it names, and
// tells who was admitted.
func TestKeysAreKeptApart(t *testing.T) {
	place := newPlace(t)
	one, err := place.server(memory)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]protocol{"Check": viaCheck, "Envoy": viaEnvoy, "WEIR.CHECK": overRESP(check)} {
		all, err := p(one, scarce, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer all.close()
		prefix := name[:1]
		for i, step := range []struct {
			keys []string
			want int
		}{
			{[]string{prefix + "a"}, 1},
			{[]string{prefix + "a"}, 0},
			{[]string{prefix + "b"}, 1},
			{[]string{prefix + "c", prefix + "d"}, 2},
			{[]string{prefix + "c", prefix + "d"}, 0},
			{[]string{prefix + "e"}, 1},
		} {
			got, err := all.list[0].ask(context.Background(), step.keys)
			if err != nil || got != step.want {
				t.Errorf("%s, step %d: %d were admitted, want %d; error %v", name, i, got, step.want, err)
			}
		}
	}
}

func TestWrongAnswersAreTold(t *testing.T) {
	l := &entrant{contender: contender{kind: harness.Weir, width: 2}, admits: true}
	if err := l.check(1); err == nil || err.Error() != "1 of 2 were admitted, and 2 should have been" {
		t.Errorf("error %v", err)
	}
	l.admits = false
	if err := l.check(0); err != nil {
		t.Errorf("error %v", err)
	}
}

// TestValues gives runs to two entrants and looks at what follows.
func TestValues(t *testing.T) {
	second := func(requests int, cpu time.Duration) run {
		took := make([]time.Duration, requests)
		for i := range took {
			took[i] = time.Millisecond
		}
		return run{took: took, elapsed: time.Second, cpu: cpu, redis: cpu}
	}
	b := board{
		{contender: contender{name: checkName, server: memory, width: 2, floor: checkFloor}, runs: []run{second(10, 30*time.Microsecond), second(40, 70*time.Microsecond), second(20, 0)}},
		{contender: contender{name: checkFloor, server: empty, width: 2, floor: checkFloor}, runs: []run{second(100, 200*time.Microsecond)}},
	}
	got := scenario{columns: columnsOfGRPC(goals{})}.values(b)[0]
	for k, want := range []float64{80, 40, 0.4, 0, 1, 1, 1, 100. / 140, 100. / 140, 0} {
		if got[k] != want {
			t.Errorf("%s: %v, want %v", columnsOfGRPC(goals{})[k].Name, got[k], want)
		}
	}
}

// TestMissing makes sure that a machine without Redis is no failure.
func TestMissing(t *testing.T) {
	if _, err := weirProgram.Build(); err != nil {
		t.Fatal(err)
	}
	q := scenario{rule: plenty, keys: newKeys(1), callers: 1, contenders: []contender{{name: "x", server: exact}}}
	t.Setenv("PATH", t.TempDir())
	a, err := harness.Ask(q.survey(tiny), nil)
	if err != nil || a.Missing != "there is no redis-server on this machine" {
		t.Errorf("missing %q, error %v", a.Missing, err)
	}
}
