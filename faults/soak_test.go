package faults

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/faults/internal/rig"
	"github.com/weirlimit/weir/faults/internal/soak"
	"github.com/weirlimit/weir/faults/internal/traffic"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/internal/redistest"
)

// soakFor is how long daemons are soaked, as "make soak" says; 0 is the short form.
var soakFor, errSoakFor = time.ParseDuration(cmp.Or(os.Getenv("WEIR_SOAK"), "0s"))

// The bounds of F21, per ten minutes. What a leak per call, per connection or per reload
// would add is many times that.
const (
	mostRSS        = 1.0 // MiB
	mostGoroutines = 5.0
	mostFiles      = 5.0
)

// judgeFrom is how long a soak must be for its slopes to mean something.
const judgeFrom = 10 * time.Minute

// F21: two daemons under a mixed load, one that counts in memory and one that leases from
// Redis. Nothing may grow, and when the load has ended all that it took is given back.
func TestSoak(t *testing.T) {
	if errSoakFor != nil {
		t.Fatalf("WEIR_SOAK: %v", errSoakFor)
	}
	if soakFor == 0 {
		t.Parallel()
	}
	s := newSoak(t, program)
	s.warmUp()
	base := s.settled("before the load")
	s.run(max(soakFor, 4*time.Second))
	s.wantBack(base)
	s.stop()
	if soakFor == 0 {
		return
	}
	race := soakRace(t, min(soakFor/6, 5*time.Minute))
	s.judge(race)
}

// soakRace soaks daemons with the race detector, and returns for how long.
func soakRace(t *testing.T, length time.Duration) time.Duration {
	t.Helper()
	program, err := rig.BuildRace("..", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := newSoak(t, program)
	s.run(length)
	s.stop()
	return length
}

// soaked is daemons and what is known of them.
type soaked struct {
	*testing.T
	daemons []*soakedDaemon
	began   time.Time
}

// soakedDaemon is one of them.
type soakedDaemon struct {
	soak.Series
	fleet   *rig.Fleet
	redis   *redistest.Server // nil if it counts in memory
	file    string            // its configuration
	reloads int
	callers *traffic.Traffic
}

func newSoak(t *testing.T, program string) *soaked {
	t.Helper()
	server := redistest.Start(t)
	s := &soaked{T: t}
	s.add(program, "memory", nil)
	s.add(program, "Redis, leased", server, "--redis", server.Addr(), "--consistency", "leased")
	return s
}

func (s *soaked) add(program, name string, redis *redistest.Server, args ...string) {
	s.Helper()
	d := &soakedDaemon{Series: soak.Series{Name: name}, redis: redis, file: filepath.Join(s.TempDir(), "weir.yaml")}
	d.configure(s.T)
	d.fleet = rig.StartFleet(s, program, 1, append(args, "-c", d.file, "--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0")...)
	s.daemons = append(s.daemons, d)
}

// configure writes the configuration, which is another one each time. The table of keys is
// so small that it is full before the slopes are looked at.
func (d *soakedDaemon) configure(t *testing.T) {
	t.Helper()
	text := fmt.Sprintf(`
store: {max_keys: 20000, redis: {timeout: 1s}}
policies:
  default: {limits: [{rate: 100, per: 1s, burst: 100}]}
  slots: {limits: [{rate: 50, algorithm: concurrency}]}
  both:
    limits: [{rate: %d, per: 1s}, {name: hourly, rate: 100000, per: 1h, algorithm: sliding_window}]
envoy:
  - domain: soak
    descriptors: [{key: caller, rate_limit: {unit: second, requests_per_unit: 50}}]
`, 10+d.reloads%2)
	next := d.file + ".next"
	err := os.WriteFile(next, []byte(text), 0o600)
	if err == nil {
		err = os.Rename(next, d.file)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.reloads++
}

// call starts callers: some thousand calls a second for both daemons together.
func (d *soakedDaemon) call(t *testing.T) {
	t.Helper()
	at := d.fleet.Daemons[0]
	f := traffic.Start(t, traffic.Place{HTTP: at.Listener("http"), GRPC: at.Listener("grpc"), RESP: at.Listener("resp")})
	var churned atomic.Int64
	key := func() string { // one in three is hot, one is one of many, and one is new
		switch n := rand.IntN(3); n {
		case 0:
			return "hot"
		case 1:
			return fmt.Sprintf("user%d", rand.IntN(1000))
		default:
			return fmt.Sprintf("new%d", churned.Add(1))
		}
	}
	body := func(policy, more string) func() string {
		return func() string { return fmt.Sprintf(`{"policy":%q,"key":%q%s}`, policy, key(), more) }
	}
	check := func() *weirv1.CheckRequest { return &weirv1.CheckRequest{Policy: "default", Key: key()} }
	command := func() []string { return []string{"WEIR.CHECK", "default", key()} }
	throttle := func() []string { // among known keys: its table is larger, and would take an hour to fill
		return []string{"CL.THROTTLE", fmt.Sprintf("user%d", rand.IntN(1000)), "15", "30", "60"}
	}
	often, seldom := traffic.UpTo(40*time.Millisecond), traffic.UpTo(400*time.Millisecond)

	f.Add("HTTP/1.1", 8, often, traffic.HTTP("/v1/check", body("default", "")))
	f.Add("HTTP/1.1, two limits", 2, often, traffic.HTTP("/v1/check", body("both", "")))
	f.Add("HTTP/1.1, waiting", 2, often, traffic.HTTP("/v1/check", body("default", `,"max_wait_ms":200`)))
	f.Add("reservations", 4, often, traffic.Reservations(body("default", `,"cost":2,"ttl_ms":10000`)))
	f.Add("slots", 2, often, traffic.Reservations(body("slots", `,"ttl_ms":10000`)))
	f.Add("Connect", 2, often, traffic.Connect(1, check))
	f.Add("Connect, HTTP/2", 2, often, traffic.Connect(2, check))
	f.Add("gRPC", 4, often, traffic.GRPC(check))
	f.Add("Envoy RLS", 2, often, traffic.Envoy("soak", "caller", key))
	f.Add("RESP", 2, often, traffic.RESP(1, 1, command))
	f.Add("RESP, pipelines", 1, often, traffic.RESP(16, 1, command))
	f.Add("RESP, CL.THROTTLE", 1, often, traffic.RESP(1, 1, throttle))
	f.Add("operators: stats", 1, seldom, traffic.HTTP("/admin/v1/stats", traffic.Always("")))
	f.Add("operators: policies", 1, seldom, traffic.HTTP("/admin/v1/policies", traffic.Always("")))
	f.Add("operators: reset", 1, seldom, traffic.HTTP("/admin/v1/keys/reset", body("default", "")))
	f.Add("metrics", 1, seldom, traffic.HTTP("/metrics", traffic.Always("")))
	f.Add("new connections: HTTP/1.1", 2, seldom, traffic.Once(traffic.HTTP("/v1/check", body("default", ""))))
	f.Add("new connections: Connect", 1, seldom, traffic.Once(traffic.Connect(2, check)))
	f.Add("new connections: gRPC", 1, seldom, traffic.Once(traffic.GRPC(check)))
	f.Add("new connections: RESP", 1, seldom, traffic.Once(traffic.RESP(1, 1, command)))
	d.callers = f
}

// warmUp has each daemon open what it opens once, such as connections to Redis, of which
// some are for bursts of calls.
func (s *soaked) warmUp() {
	s.Helper()
	s.fill()
	s.start()
	s.forAWhile(time.Second)
	s.end()
}

// filling is more keys than a daemon remembers, which are 131,072 beside Redis.
const filling = 150_000

// fill has tables fill up that the load would take an hour to fill. What has a bound is no
// leak, but would look like one.
func (s *soaked) fill() {
	s.Helper()
	for _, d := range s.daemons {
		at := d.fleet.Daemons[0]
		f := traffic.Start(s, traffic.Place{RESP: at.Listener("resp")})
		var n atomic.Int64
		f.Add("fill", 4, traffic.UpTo(time.Millisecond), traffic.RESP(200, 1, func() []string {
			return []string{"WEIR.CHECK", "default", fmt.Sprintf("fill%d", n.Add(1))}
		}))
		rig.Await(s, d.Name+" to be full", 5*patience, func() error {
			want := int64(filling)
			if soakFor == 0 {
				want /= 10
			}
			if got := n.Load(); got < want {
				return fmt.Errorf("%d of %d", got, want)
			}
			return nil
		})
		f.Stop()
	}
}

func (s *soaked) start() {
	s.Helper()
	s.began = time.Now()
	for _, d := range s.daemons {
		d.Samples = nil
		d.call(s.T)
	}
}

// run has the load go on for some time, and takes samples.
func (s *soaked) run(length time.Duration) {
	s.Helper()
	every := max(length/360, 500*time.Millisecond)
	s.start()
	for next, tick := time.Duration(0), 0; next <= length; next, tick = next+every, tick+1 {
		s.forAWhile(next - time.Since(s.began))
		for _, d := range s.daemons {
			d.sample(s.T, time.Since(s.began))
			if tick%6 == 5 {
				d.configure(s.T)
			}
		}
		if tick%12 == 11 {
			s.progress(length)
		}
	}
	s.end()
}

// forAWhile lets the load go on.
func (s *soaked) forAWhile(d time.Duration) {
	ctx, cancel := context.WithTimeout(s.Context(), d)
	defer cancel()
	<-ctx.Done()
}

// sample looks at a daemon.
func (d *soakedDaemon) sample(t *testing.T, at time.Duration) {
	t.Helper()
	usage := d.fleet.Usage()
	x := soak.Sample{
		At: at, RSS: float64(usage.RSS), FDs: float64(usage.FDs),
		Heap:       d.fleet.Metric(0, "go_memstats_heap_inuse_bytes"),
		Goroutines: d.fleet.Metric(0, "go_goroutines"),
	}
	for _, n := range d.callers.Tallies() {
		x.Calls += float64(n.Calls())
	}
	d.Samples = append(d.Samples, x)
}

func (s *soaked) progress(length time.Duration) {
	s.Helper()
	var parts []string
	for _, d := range s.daemons {
		x := d.Samples[len(d.Samples)-1]
		parts = append(parts, fmt.Sprintf("%s: %.1f MiB, heap %.1f, %.0f goroutines, %.0f files, %.0f calls/s",
			d.Name, soak.RSS(x), soak.Heap(x), x.Goroutines, x.FDs, d.Rate()))
	}
	s.Logf("%v of %v: %s", time.Since(s.began).Round(time.Second), length, strings.Join(parts, "; "))
}

// end ends the load, and fails the test if a call had no answer.
func (s *soaked) end() {
	s.Helper()
	for _, d := range s.daemons {
		for _, n := range d.callers.Stop() {
			if n.Dropped.Load()+n.Failed.Load()+n.Refused.Load()+n.Told.Load() > 0 || n.Calls() == 0 {
				s.Errorf("%s: %s: %d calls, of which %d were dropped, %d failed, %d refused, %d not carried out: %q", d.Name, n.Name,
					n.Calls(), n.Dropped.Load(), n.Failed.Load(), n.Refused.Load(), n.Told.Load(), n.Notes())
			}
		}
	}
}

// settled returns what each daemon has once its counts do not change any more.
func (s *soaked) settled(when string) (all []soak.Sample) {
	s.Helper()
	for _, d := range s.daemons {
		x := d.rest(s.T)
		s.Logf("%s: %s: %.0f goroutines, %.0f open files", d.Name, when, x.Goroutines, x.FDs)
		all = append(all, x)
	}
	return all
}

// goroutinesOfClient is how many a connection to Redis has: one writes, one reads.
const goroutinesOfClient = 2

// rest returns the usage of a daemon without calls, without its connections to Redis: it
// opens some during a burst of calls, has at most poolSize of them, and keeps them.
func (d *soakedDaemon) rest(t *testing.T) soak.Sample {
	t.Helper()
	d.fleet.Calm()
	kept := d.Samples // which are of the load alone
	d.sample(t, 0)
	x := d.Samples[len(d.Samples)-1]
	d.Samples = kept
	if d.redis == nil {
		return x
	}
	n, err := clients(d.redis)
	if err != nil || n > poolSize {
		t.Fatalf("%s: %d connections to Redis, want at most %d; %v", d.Name, n, poolSize, err)
	}
	x.FDs -= float64(n)
	x.Goroutines -= float64(goroutinesOfClient * n)
	return x
}

// wantBack waits until each daemon has no more goroutines and files than it had.
func (s *soaked) wantBack(base []soak.Sample) {
	s.Helper()
	for i, d := range s.daemons {
		rig.Await(s, d.Name+" to give back what it took", patience, func() error {
			if x := d.rest(s.T); x.Goroutines > base[i].Goroutines || x.FDs > base[i].FDs {
				return fmt.Errorf("%.0f goroutines and %.0f files, before %.0f and %.0f",
					x.Goroutines, x.FDs, base[i].Goroutines, base[i].FDs)
			}
			return nil
		})
	}
}

// stop ends the daemons, and fails the test if they wrote of races.
func (s *soaked) stop() {
	s.Helper()
	for _, d := range s.daemons {
		d.fleet.Stop()
		if n := d.fleet.Daemons[0].Wrote("DATA RACE"); n > 0 {
			s.Errorf("%s: %d data races", d.Name, n)
		}
	}
}

// judge looks at the slopes and writes the page.
func (s *soaked) judge(race time.Duration) {
	s.Helper()
	page := &soak.Page{Date: results.Date, Machine: results.Machine, Race: race}
	for _, d := range s.daemons {
		page.Series = append(page.Series, &d.Series)
		for _, f := range []struct {
			name string
			of   soak.Figure
			most float64
		}{{"RSS, MiB per 10 min", soak.RSS, mostRSS}, {"goroutines per 10 min", soak.Goroutines, mostGoroutines}, {"open files per 10 min", soak.FDs, mostFiles}} {
			slope := d.Slope(f.of)
			met := slope < f.most
			page.Rows = append(page.Rows, soak.Row(d.Name+": "+f.name, slope, fmt.Sprintf("< %g", f.most), met))
			s.Logf("%s: %s: %.2f, must be < %g", d.Name, f.name, slope, f.most)
			if !met && soakFor >= judgeFrom {
				s.Errorf("%s: %s: %.2f, want < %g", d.Name, f.name, slope, f.most)
			}
		}
	}
	s.write(page)
}

// write writes the page, if the soak was long enough to tell something.
func (s *soaked) write(page *soak.Page) {
	s.Helper()
	if soakFor < judgeFrom {
		s.Logf("no page is written: the slopes of less than %v mean little", judgeFrom)
		return
	}
	docs := filepath.Join("..", "docs")
	err := page.WriteInto(filepath.Join(docs, "operations.md"))
	if err == nil {
		err = os.WriteFile(filepath.Join(docs, "soak.svg"), page.SVG(), 0o644)
	}
	if err != nil {
		s.Error(err)
	}
}
