package overrides

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redisconn"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

func open(t *testing.T, srv *redistest.Server) *Redis {
	t.Helper()
	r, err := NewRedis(ctx, redisconn.Config{Addrs: []string{srv.Addr()}}, "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func override(policy, key string, until time.Time, limits ...weir.Limit) server.Override {
	o := server.Override{Policy: policy, Override: ruleset.Override{Key: key, Until: until}}
	for _, l := range limits {
		o.Limits = append(o.Limits, ruleset.Limit{Limit: l})
	}
	return o
}

func list(t *testing.T, r *Redis) []server.Override {
	t.Helper()
	got, err := r.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, func(a, b server.Override) int { return cmp.Compare(a.Policy+a.Key, b.Policy+b.Key) })
	return got
}

// Another daemon reads what one has written, whatever is in it.
func TestRoundTrip(t *testing.T) {
	srv := redistest.Start(t)
	a, b := open(t, srv), open(t, srv)
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	want := []server.Override{
		override("api", "alice", later, weir.Limit{Rate: 100, Per: weir.Every(1500 * time.Millisecond), Burst: 7, Algorithm: weir.TokenBucket, MaxDebt: 3, Initial: weir.Filled(0.25), OnError: weir.FailClosed}),
		override("api", "b\x00o\xffb*", time.Time{}, weir.Limit{Name: "daily", Rate: 1, Per: weir.Calendar(weir.Month, berlin)}, weir.Limit{Rate: 5, Per: weir.Every(time.Second)}),
		override("slots", "alice", later, weir.Limit{Rate: 3, Algorithm: weir.Concurrency}),
		override("tiers", "alice", later, weir.Limit{
			Rate: 3, Per: weir.Every(time.Second), Classes: weir.ClassesOf(weir.Class{Name: "a", Guaranteed: 2, Burst: 1, NoBorrow: true}, weir.Class{Name: "b"}),
		}),
	}
	for _, o := range want {
		if err := a.Put(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	same := []gocmp.Option{cmpopts.EquateApproxTime(time.Millisecond), gocmp.Comparer(func(a, b weir.Period) bool { return a == b }), gocmp.Comparer(func(a, b weir.Fill) bool { return a == b }), gocmp.Comparer(func(a, b weir.Classes) bool { return a == b })}
	if diff := gocmp.Diff(want, list(t, b), same...); diff != "" {
		t.Error(diff)
	}
	if was, err := b.Remove(ctx, "api", "alice"); !was || err != nil {
		t.Errorf("%v %v", was, err)
	}
	if was, err := a.Remove(ctx, "api", "alice"); was || err != nil {
		t.Errorf("%v %v", was, err)
	}
	if got := list(t, a); len(got) != 3 {
		t.Errorf("%+v", got)
	}
}

// What has ended is not listed, and goes when a daemon tidies up; the hash ends with the last one.
func TestEnds(t *testing.T) {
	srv := redistest.Start(t)
	r := open(t, srv)
	second := weir.Limit{Rate: 1, Per: weir.Every(time.Second)}
	for _, o := range []server.Override{
		override("api", "over", time.Now().Add(-time.Second), second),
		override("api", "short", time.Now().Add(time.Minute), second),
		override("api", "long", time.Now().Add(time.Hour), second),
	} {
		if err := r.Put(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	if got := list(t, r); len(got) != 2 {
		t.Errorf("%+v", got)
	}
	watching, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); r.Watch(watching, func() {}) }()
	for began := time.Now(); number(t, srv, "HLEN") == 4 && time.Since(began) < 5*time.Second; {
		time.Sleep(time.Millisecond)
	}
	end()
	<-ended
	if n := number(t, srv, "HLEN"); n != 3 { // with the version
		t.Errorf("%d fields", n)
	}
	if ttl := number(t, srv, "TTL"); ttl < 3600 || ttl > 3700 {
		t.Errorf("it ends in %d s", ttl)
	}
	if err := r.Put(ctx, override("api", "forever", time.Time{}, second)); err != nil {
		t.Fatal(err)
	}
	if ttl := number(t, srv, "TTL"); ttl != -1 {
		t.Errorf("it ends in %d s, with an override that does not", ttl)
	}
}

// The hash ends no earlier than its last override, also when Put does not read the others.
func TestEndIsNeverEarlier(t *testing.T) {
	srv := redistest.Start(t)
	r := open(t, srv)
	second := weir.Limit{Rate: 1, Per: weir.Every(time.Second)}
	for i, tt := range []struct {
		in, least, most time.Duration
	}{
		{time.Minute, 2 * time.Minute, 2 * time.Minute},
		{time.Hour, 61 * time.Minute, 61 * time.Minute},
		{time.Minute, 61 * time.Minute, 61 * time.Minute},
	} {
		if err := r.Put(ctx, override("api", strconv.Itoa(i), time.Now().Add(tt.in), second)); err != nil {
			t.Fatal(err)
		}
		ttl := time.Duration(number(t, srv, "TTL")) * time.Second
		if ttl < tt.least-10*time.Second || ttl > tt.most {
			t.Errorf("%d: it ends in %v, want %v", i, ttl, tt.most)
		}
	}
	for _, until := range []time.Time{{}, time.Now().Add(time.Minute)} {
		if err := r.Put(ctx, override("api", "last", until, second)); err != nil {
			t.Fatal(err)
		}
		if ttl := number(t, srv, "TTL"); ttl != -1 {
			t.Errorf("it ends in %d s, and there was an override that does not", ttl)
		}
	}
}

// Setting an override does not read all others: the time to set many of them would be quadratic.
func TestPutReadsNoOthers(t *testing.T) {
	srv := redistest.Start(t)
	r := open(t, srv)
	second := weir.Limit{Rate: 1, Per: weir.Every(time.Second)}
	const puts = 20
	for i := range puts {
		if err := r.Put(ctx, override("api", strconv.Itoa(i), time.Time{}, second)); err != nil {
			t.Fatal(err)
		}
	}
	if stats := srv.MustDo("INFO", "commandstats").Text; strings.Contains(stats, "hgetall") {
		t.Errorf("all were read: %s", stats)
	}
	if got := list(t, r); len(got) != puts {
		t.Errorf("there are %d, want %d", len(got), puts)
	}
}

// Two daemons tidy up at the same time: neither removes what the other has just renewed,
// nor lets an override end that does not.
func TestTidyTogether(t *testing.T) {
	srv := redistest.Start(t)
	a, b := open(t, srv), open(t, srv)
	second := weir.Limit{Rate: 1, Per: weir.Every(time.Second)}
	end := time.Now().Add(time.Hour)
	if err := a.Put(ctx, override("api", "alice", end, second)); err != nil {
		t.Fatal(err)
	}
	seen, err := a.read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Put(ctx, override("api", "alice", time.Time{}, second)); err != nil {
		t.Fatal(err)
	}
	if done, err := a.tidyUp(ctx, seen, end); done || err != nil { // for a, she has just ended
		t.Errorf("%v, %v", done, err)
	}
	if got := list(t, a); len(got) != 1 || number(t, srv, "TTL") != -1 {
		t.Errorf("%+v, which ends in %d s", got, number(t, srv, "TTL"))
	}
}

// number returns what a command says of the hash.
func number(t *testing.T, srv *redistest.Server, command string) int {
	t.Helper()
	n, err := strconv.Atoi(srv.MustDo(command, "weir:overrides").Text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Other daemons learn of a change.
func TestWatch(t *testing.T) {
	srv := redistest.Start(t)
	a, b := open(t, srv), open(t, srv)
	changed := make(chan struct{}, 100)
	watching, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.Watch(watching, func() { changed <- struct{}{} })
	}()
	defer func() { end(); <-ended }()
	notified := func(what string) {
		t.Helper()
		select {
		case <-changed:
		case <-time.After(8 * time.Second): // before it looks at everything
			t.Fatalf("there was no notification of %s", what)
		}
	}
	notified("what there was")
	for range 3 {
		if err := a.Put(ctx, override("api", "alice", time.Time{}, weir.Limit{Rate: 1, Per: weir.Every(time.Second)})); err != nil {
			t.Fatal(err)
		}
		notified("a change")
	}
}

// What a later version wrote, or somebody else, keeps nobody from reading the rest.
func TestRubbish(t *testing.T) {
	srv := redistest.Start(t)
	r := open(t, srv)
	srv.MustDo("HSET", "weir:overrides", "api\x00x", "{", "api\x00y", `{"limits":[{"per":"1 parsec"}]}`, "z", "z")
	if got := list(t, r); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	if err := r.Put(ctx, override("api", "alice", time.Now().Add(time.Hour), weir.Limit{Rate: 1, Per: weir.Every(time.Second)})); err != nil {
		t.Fatal(err)
	}
	if ttl := number(t, srv, "TTL"); ttl != -1 {
		t.Errorf("what is not understood ends in %d s", ttl)
	}
}
