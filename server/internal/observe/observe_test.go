package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/weirprom"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// raced says whether the race detector is on, which allocates.
func raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

var rules = func() *ruleset.Rules {
	limit := ruleset.Limit{Limit: weir.Limit{Rate: 1, Per: weir.Every(time.Second)}}
	second := limit
	second.Name = "second"
	rules, err := ruleset.Compile([]ruleset.Policy{
		{Name: "api", Limits: []ruleset.Limit{limit, second}},
		{Name: "login", Limits: []ruleset.Limit{limit}},
	}, nil)
	if err != nil {
		panic(err)
	}
	return rules
}()

var (
	admitted  = weir.Decision{Allowed: true, Reason: weir.Admitted}
	exhausted = weir.Decision{Reason: weir.Exhausted, RetryAfter: 250 * time.Millisecond}
)

func record(policy, key string, d weir.Decision) *ruleset.Record {
	return &ruleset.Record{
		Verdict: ruleset.Verdict{Decision: d, Variant: rules.Rule(policy).Base(), Shadow: -1},
		Key:     key, Cost: 1, Client: "shop", Took: time.Millisecond,
	}
}

// silent drops all lines.
var silent = slog.New(slog.DiscardHandler)

// logged returns an observer and what it logs.
func logged(level slog.Level) (*Observer, *bytes.Buffer) {
	out := new(bytes.Buffer)
	return New(weirprom.Memory, slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level}))), out
}

// counts returns the counters that are not 0: "policy decision reason backend".
func counts(t *testing.T, o *Observer) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(o.Decisions())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "weir_decisions_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if len(labels) != 4 {
				t.Errorf("labels %v", labels)
			}
			got[fmt.Sprint(labels["policy"], " ", labels["decision"], " ", labels["reason"], " ", labels["backend"])] = m.GetCounter().GetValue()
		}
	}
	return got
}

func TestCounts(t *testing.T) {
	shadowed, batched, peeked, refusedInShadow := record("api", "k", admitted), record("api", "k", weir.Decision{}), record("api", "k", exhausted), record("api", "k", exhausted)
	shadowed.Shadow, refusedInShadow.Shadow = 1, 1
	peeked.Peek = true
	local := admitted
	local.Estimate = true
	shadowedHere := record("api", "k", local)
	shadowedHere.Shadow = 1
	tests := []struct {
		name   string
		record *ruleset.Record
		want   string // "" = nothing
		listed bool   // among those who are refused most
	}{
		{"admitted", record("api", "k", admitted), "api allowed admitted redis", false},
		{"another policy", record("login", "k", admitted), "login allowed admitted redis", false},
		{"refused", record("api", "k", exhausted), "api denied exhausted redis", true},
		{"refused and in shadow", refusedInShadow, "api denied exhausted redis", true},
		{"too costly", record("api", "k", weir.Decision{Reason: weir.TooCostly}), "api denied too_costly redis", true},
		{"shadow", shadowed, "api shadow_denied exhausted redis", false},
		{"store down", record("api", "k", weir.Decision{Reason: weir.StoreDown}), "api denied store_down local", true},
		{"store down, let in", record("api", "k", weir.Decision{Allowed: true, Reason: weir.StoreDown}), "api allowed store_down local", false},
		{"decided here", record("api", "k", local), "api allowed admitted local", false},
		{"refused here", record("api", "k", weir.Decision{Reason: weir.Exhausted, Estimate: true}), "api denied exhausted local", true},
		{"shadow, decided here", shadowedHere, "api shadow_denied exhausted local", false},
		{"of a batch that another refused", batched, "api denied not_charged redis", false},
		{"peek", peeked, "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := New(weirprom.Redis, silent)
			o.Decided(tt.record)
			o.Decided(tt.record)
			want := map[string]float64{}
			if tt.want != "" {
				want[tt.want] = 2
			}
			if got := counts(t, o); !maps.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
			if top := o.Top(5); (len(top) > 0) != tt.listed {
				t.Errorf("the most refused are %v", top)
			}
		})
	}
}

func lines(t *testing.T, out *bytes.Buffer) (list []map[string]any) {
	t.Helper()
	for line := range strings.Lines(out.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, fields)
	}
	out.Reset()
	return list
}

// Several at once are watched as one after the other.
func TestDecidedEach(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	local := admitted
	local.Estimate = true
	for range 200 {
		var (
			items    []ruleset.Item
			verdicts []ruleset.Verdict
			took     = []time.Duration{ruleset.Untimed, time.Millisecond}[rng.IntN(2)]
		)
		for range rng.IntN(20) {
			d := []weir.Decision{admitted, admitted, admitted, local, exhausted, {Reason: weir.StoreDown, Allowed: true}, {}}[rng.IntN(7)]
			r := record([]string{"api", "login"}[rng.IntN(2)], fmt.Sprint("k", rng.IntN(3)), d)
			if rng.IntN(10) == 0 {
				r.Shadow = 0
			}
			items = append(items, ruleset.Item{Query: ruleset.Query{Key: r.Key, Cost: 1, Client: "shop"}, Peek: rng.IntN(10) == 0})
			verdicts = append(verdicts, r.Verdict)
		}
		for _, level := range []slog.Level{slog.LevelInfo, slog.LevelDebug} {
			one, ones := logged(level)
			each, eachs := logged(level)
			for i, item := range items {
				r := ruleset.Record{Verdict: verdicts[i], Key: item.Query.Key, Cost: 1, Client: "shop", Peek: item.Peek, Took: ruleset.Untimed}
				if i == 0 {
					r.Took = took
				}
				one.Decided(&r)
			}
			each.DecidedEach(items, verdicts, took)
			if diff := cmp.Diff(counts(t, one), counts(t, each)); diff != "" {
				t.Fatalf("%+v: (-one, +each)\n%s", verdicts, diff)
			}
			if got, want := len(lines(t, eachs)), len(lines(t, ones)); got != want {
				t.Fatalf("%d lines, want %d", got, want)
			}
			if diff := cmp.Diff(one.Top(9), each.Top(9)); diff != "" {
				t.Fatal(diff)
			}
		}
	}
}

// Who watches sees each of several.
func TestDecidedEachIsSent(t *testing.T) {
	o := New(weirprom.Memory, silent)
	seen, _, cancel, err := o.Subscribe()
	if err != nil {
		t.Fatal(err)
	}
	defer cancel()
	v := record("api", "", admitted).Verdict
	o.DecidedEach([]ruleset.Item{{Query: ruleset.Query{Key: "a"}}, {Query: ruleset.Query{Key: "b"}}}, []ruleset.Verdict{v, v}, ruleset.Untimed)
	if a, b := <-seen, <-seen; a.Key != "a" || b.Key != "b" {
		t.Errorf("saw %q and %q", a.Key, b.Key)
	}
}

func TestOneLineASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, out := logged(slog.LevelInfo)
		secret := "key\r\nof-alice"
		refuse := func(policy string, n int) {
			for range n {
				o.Decided(record(policy, secret, exhausted))
				o.Decided(record(policy, secret, admitted))
				peek := record(policy, secret, exhausted)
				peek.Peek = true
				o.Decided(peek)
			}
		}
		want := func(since ...float64) {
			t.Helper()
			var got []float64
			for _, l := range lines(t, out) {
				got = append(got, l["since_last_line"].(float64))
			}
			if !slices.Equal(got, since) {
				t.Errorf("lines %v, want %v", got, since)
			}
		}
		refuse("api", 1)
		text := out.String()
		if strings.Contains(text, "alice") {
			t.Errorf("the key is in the log: %s", text)
		}
		got := lines(t, out)[0]
		delete(got, "time")
		if diff := cmp.Diff(map[string]any{
			"level": "INFO", "msg": "denied", "policy": "api", "limited_by": "api", "reason": "exhausted",
			"retry_after": 250e6, "client": "shop", "class": "", "since_last_line": 1.0,
		}, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		refuse("api", 100)
		want()
		refuse("login", 5) // which has lines of its own
		want(1)
		time.Sleep(time.Second - 1)
		refuse("api", 10)
		want()
		time.Sleep(time.Nanosecond)
		refuse("api", 1)
		want(111)
		refuse("api", 3)
		time.Sleep(time.Hour)
		refuse("api", 2)
		want(4)
		refuse("login", 1)
		want(5)
	})
}

func TestKeysAtDebugLevelOnly(t *testing.T) {
	const key = "alice\r\n{\"x\":1}"
	peek := record("api", key, exhausted)
	peek.Peek = true
	for level, want := range map[slog.Level]int{slog.LevelInfo: 0, slog.LevelDebug: 3} {
		o, out := logged(level)
		o.Decided(record("api", key, admitted))
		o.Decided(record("api", key, exhausted))
		o.Decided(peek)
		found := 0
		for _, l := range lines(t, out) {
			if l["key"] == key && l["msg"] == "decision" {
				found++
			} else if strings.Contains(fmt.Sprint(l), "alice") {
				t.Errorf("%v", l)
			}
		}
		if found != want {
			t.Errorf("%v: %d lines have the key", level, found)
		}
	}
}

// A flood of keys that are refused fills neither memory nor the list of those who are
// refused most.
func TestFlood(t *testing.T) {
	n := 1_000_000
	if raced() {
		n /= 10
	}
	o := New(weirprom.Memory, silent)
	r, worst := record("api", "", exhausted), record("login", "worst", exhausted)
	flood := func() {
		key := make([]byte, 0, 32)
		for i := range n {
			key = fmt.Appendf(key[:0], "bogus-%d", i)
			r.Key = string(key)
			o.Decided(r)
			if i%100 == 0 {
				o.Decided(worst)
			}
		}
	}
	flood()
	before := heap()
	flood()
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("%d more keys took %d bytes", n, grown)
	}
	top := o.Top(10)
	if len(top) != 10 || top[0].Label != "login\x00worst" {
		t.Fatalf("the most refused are %v", top)
	}
	if e, true2 := top[0], int64(2*n/100); e.Count < true2 || e.Count-e.Error > true2 {
		t.Errorf("%d, give or take %d, want %d", e.Count, e.Error, true2)
	}
	if len(o.Top(1<<20)) > keptLimited {
		t.Errorf("%d are kept", len(o.Top(1<<20)))
	}
	want := map[string]float64{"api denied exhausted memory": float64(2 * n), "login denied exhausted memory": float64(2 * n / 100)}
	if got := counts(t, o); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestRunFades(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := New(weirprom.Memory, silent)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); o.Run(ctx) }()
		time.Sleep(fadeEvery)
		for range 64 {
			o.Decided(record("api", "k", exhausted))
		}
		time.Sleep(time.Minute)
		if top := o.Top(1); top[0].Count != 64 {
			t.Errorf("after a minute: %v", top)
		}
		time.Sleep(20 * time.Minute)
		if top := o.Top(1); len(top) != 1 || top[0].Count < 8 || top[0].Count > 32 {
			t.Errorf("after twenty minutes: %v", top)
		}
		time.Sleep(3 * time.Hour)
		if top := o.Top(1); len(top) != 0 {
			t.Errorf("after hours: %v", top)
		}
		cancel()
		<-done
	})
}

func TestSubscribe(t *testing.T) {
	o := New(weirprom.Memory, silent)
	records, lost, cancel, err := o.Subscribe()
	if err != nil {
		t.Fatal(err)
	}
	defer cancel()
	buffer := []byte("alice")
	r := record("api", unsafe.String(&buffer[0], len(buffer)), admitted) // part of a request's memory
	o.Decided(r)
	peek := record("api", "peek", admitted)
	peek.Peek = true
	o.Decided(peek)
	o.Decided(record("login", "bob", exhausted))
	*r = ruleset.Record{} // its owner uses it again, and the memory
	copy(buffer, "xxxxx")
	first, second := <-records, <-records
	if first.Key != "alice" || first.Policy() != "api" || !first.Allowed || first.Client != "shop" || first.Took != time.Millisecond {
		t.Errorf("%+v", first)
	}
	if second.Key != "bob" || second.LimitedBy() != "login" || len(records) != 0 || lost() != 0 {
		t.Errorf("%+v, and %d more", second, len(records))
	}
}

func TestASlowSubscriberLoses(t *testing.T) {
	o := New(weirprom.Memory, silent)
	slow, lost, cancelSlow, _ := o.Subscribe()
	quick, lostQuick, cancelQuick, _ := o.Subscribe()
	defer cancelQuick()
	for i := range maxLag + 100 {
		o.Decided(record("api", fmt.Sprint(i), admitted))
		if got := <-quick; got.Key != fmt.Sprint(i) {
			t.Fatalf("%d: %q", i, got.Key)
		}
	}
	if len(slow) != maxLag || lost() != 100 || lost() != 0 || lostQuick() != 0 {
		t.Errorf("%d wait", len(slow))
	}
	if first := <-slow; first.Key != "0" { // the oldest are kept
		t.Error(first.Key)
	}
	o.Decided(record("api", "again", admitted))
	if lost() != 0 || len(slow) != maxLag {
		t.Error("there was room again")
	}
	cancelSlow()
	cancelSlow()
	for range 10 {
		o.Decided(record("api", "after", admitted))
	}
	if lost() != 0 {
		t.Error("who has left is still sent to")
	}
	if len(quick) != 11 {
		t.Errorf("leaving twice took another's place: %d", len(quick))
	}
}

func TestSubscribersAreBounded(t *testing.T) {
	o := New(weirprom.Memory, silent)
	var cancels []func()
	for range maxWatchers {
		_, _, cancel, err := o.Subscribe()
		if err != nil {
			t.Fatal(err)
		}
		cancels = append(cancels, cancel)
	}
	if _, _, _, err := o.Subscribe(); err == nil {
		t.Error("there are 17")
	}
	cancels[3]()
	_, _, cancel, err := o.Subscribe()
	if err != nil {
		t.Error(err)
	}
	cancel()
	for _, cancel := range cancels {
		cancel()
	}
	if o.events.watchers.Load() != 0 || len(o.events.list) != 0 {
		t.Error("somebody is left")
	}
}

// What is counted by many at once is counted once.
func TestManyAtOnce(t *testing.T) {
	o, out := logged(slog.LevelInfo)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for n := range 500 {
				o.Decided(record("api", fmt.Sprint("k", n%7), []weir.Decision{admitted, exhausted}[n%2]))
				if n%50 == 0 {
					o.Top(3)
				}
			}
		})
		wg.Go(func() {
			for range 50 {
				records, lost, cancel, err := o.Subscribe()
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case <-records:
				default:
				}
				lost()
				cancel()
			}
		})
	}
	wg.Wait()
	want := map[string]float64{"api allowed admitted memory": 1000, "api denied exhausted memory": 1000}
	if got := counts(t, o); !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	var sum int64
	for _, e := range o.Top(10) {
		sum += e.Count
	}
	if sum != 1000 {
		t.Errorf("%d refusals are listed", sum)
	}
	w := o.watch("api")
	logged := float64(w.denials.since.Load())
	for _, l := range lines(t, out) {
		logged += l["since_last_line"].(float64)
	}
	if logged != 1000 {
		t.Errorf("%v refusals were logged", logged)
	}
}

// Decisions that are counted at once are counted like single ones, unless somebody looks at
// each: Admitted returns false then, and counts nothing.
func TestAdmitted(t *testing.T) {
	o := New(weirprom.Redis, silent)
	v := record("api", "k", admitted).Variant
	want := map[string]float64{"api allowed admitted redis": 16}
	if !o.Admitted(v, 16) || !maps.Equal(counts(t, o), want) {
		t.Errorf("%v", counts(t, o))
	}
	_, _, cancel, err := o.Subscribe()
	if err != nil {
		t.Fatal(err)
	}
	if o.Admitted(v, 16) || !maps.Equal(counts(t, o), want) {
		t.Errorf("with somebody who watches: %v", counts(t, o))
	}
	cancel()
	if verbose, _ := logged(slog.LevelDebug); verbose.Admitted(v, 16) || len(counts(t, verbose)) != 0 {
		t.Errorf("with a log of each: %v", counts(t, verbose))
	}
}

func TestDecidedAllocates(t *testing.T) {
	if raced() {
		t.Skip("the race detector allocates")
	}
	o := New(weirprom.Memory, slog.New(slog.NewTextHandler(new(bytes.Buffer), nil)))
	shadowed := record("api", "k", admitted)
	shadowed.Shadow = 1
	tests := []struct {
		name   string
		record *ruleset.Record
		most   float64
	}{
		{"admitted", record("api", "k", admitted), 0},
		{"in shadow", shadowed, 0},
		{"refused", record("api", "k", exhausted), 1},
	}
	for _, tt := range tests {
		o.Decided(tt.record) // makes the counters, and writes the second's line
		if n := testing.AllocsPerRun(1000, func() { o.Decided(tt.record) }); n > tt.most {
			t.Errorf("%s: %v allocations, want at most %v", tt.name, n, tt.most)
		}
	}
}

func ExampleNew() {
	o := New(weirprom.Memory, silent)
	for _, key := range []string{"alice", "bob", "alice"} {
		o.Decided(record("api", key, exhausted))
	}
	for _, e := range o.Top(1) {
		policy, key, _ := strings.Cut(e.Label, "\x00")
		fmt.Printf("%s was refused %d times by %s\n", key, e.Count, policy)
	}
	// Output: alice was refused 2 times by api
}

func BenchmarkDecided(b *testing.B) {
	for name, d := range map[string]weir.Decision{"admitted": admitted, "refused": exhausted} {
		b.Run(name, func(b *testing.B) {
			o := New(weirprom.Memory, silent)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				r := record("api", "k", d)
				for pb.Next() {
					o.Decided(r)
				}
			})
		})
	}
}
