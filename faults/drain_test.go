package faults

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/faults/internal/rig"
	"github.com/weirlimit/weir/faults/internal/traffic"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/internal/redistest"
)

// F12: daemons are replaced one after the other, under load over all protocols. Each is
// stopped when the next one is ready, and callers go there once /readyz says that the
// old one is not.
func TestDrain(t *testing.T) {
	tr := try(t, "F12", "SIGTERM to a daemon under load over all protocols, while the next one is ready; 10 times, with consistency leased, async and exact by turns",
		"not ready at once; no call that was sent is without a complete answer, or a reply that it was not carried out; the daemon ends within 10 s with exit code 0; then Redis has every unit that was admitted, and none besides")
	d := newDrain(tr)
	callers := traffic.Start(t, d.place())
	addCallers(callers)
	waited := int64(0)
	cycles := pick(10, 2)
	for i := range cycles {
		d.untilBusy(callers)
		next := d.start(consistencies[(i+1)%len(consistencies)])
		waited += callers.InFlight(kindWait) + callers.InFlight(kindGRPCWait)
		d.replace(callers, next)
	}
	d.untilBusy(callers)
	tallies := callers.Stop()
	d.now.Stop()
	d.judge(tallies, cycles, waited)
}

// The kinds of callers.
const (
	kindHTTP     = "HTTP/1.1"
	kindSeldom   = "HTTP/1.1, seldom"
	kindNew      = "HTTP/1.1, new connections"
	kindWait     = "HTTP/1.1, waiting"
	kindConnect  = "Connect"
	kindConnect2 = "Connect, HTTP/2"
	kindGRPC     = "gRPC"
	kindGRPCWait = "gRPC, waiting"
	kindEnvoy    = "Envoy RLS"
	kindRESP     = "RESP"
	kindPipeline = "RESP, pipelines of 16"
	kindAhead    = "RESP, pipelines of 16, two at a time"
	kindSeldomly = "RESP, seldom"
)

// addCallers starts callers of all kinds. Each kind has a key of its own, its name. Those
// that call seldom leave a connection alone for longer than a daemon that stops waits
// before it closes what is idle, so that some calls cross that. Over RESP they must not: a
// connection that is silent for a second is closed without a message, since the protocol has none.
func addCallers(f *traffic.Traffic) {
	body := func(key string) func() string {
		return traffic.Always(fmt.Sprintf(`{"policy":"default","key":%q}`, key))
	}
	check := func(policy, key string, wait int64) func() *weirv1.CheckRequest {
		return func() *weirv1.CheckRequest {
			return &weirv1.CheckRequest{Policy: policy, Key: key, MaxWaitMs: wait}
		}
	}
	command := func(key string) func() []string { return traffic.Command("WEIR.CHECK", "default", key) }
	quickly, often := traffic.UpTo(10*time.Millisecond), traffic.UpTo(20*time.Millisecond)
	seldom := traffic.Between(300*time.Millisecond, 1500*time.Millisecond)
	waiting := traffic.Always(fmt.Sprintf(`{"policy":"slow","key":"http","max_wait_ms":%d}`, longestWait))

	f.Add(kindHTTP, 8, often, traffic.HTTP("/v1/check", body(kindHTTP)))
	f.Add(kindSeldom, 64, seldom, traffic.HTTP("/v1/check", body(kindSeldom)))
	f.Add(kindNew, 2, often, traffic.Once(traffic.HTTP("/v1/check", body(kindNew))))
	f.Add(kindWait, 8, often, traffic.HTTP("/v1/check", waiting))
	f.Add(kindConnect, 4, often, traffic.Connect(1, check("default", kindConnect, 0)))
	f.Add(kindConnect2, 4, often, traffic.Connect(2, check("default", kindConnect2, 0)))
	f.Add(kindGRPC, 4, often, traffic.GRPC(check("default", kindGRPC, 0)))
	f.Add(kindGRPCWait, 8, often, traffic.GRPC(check("slow", "grpc", longestWait)))
	f.Add(kindEnvoy, 4, often, traffic.Envoy("faults", "caller", func() string { return kindEnvoy }))
	f.Add(kindRESP, 4, quickly, traffic.RESP(1, 1, command(kindRESP)))
	f.Add(kindPipeline, 2, quickly, traffic.RESP(16, 1, command(kindPipeline)))
	f.Add(kindAhead, 2, quickly, traffic.RESP(16, 2, command(kindAhead)))
	f.Add(kindSeldomly, 32, traffic.Between(100*time.Millisecond, 500*time.Millisecond), traffic.RESP(1, 1, command(kindSeldomly)))
}

// counted are the kinds whose units are looked for in Redis afterwards, besides Envoy's.
var counted = []string{
	kindHTTP, kindSeldom, kindNew, kindConnect, kindConnect2, kindGRPC, kindRESP, kindPipeline, kindAhead, kindSeldomly,
}

// longestWait is how long a call may wait for its turn, in milliseconds.
const longestWait = 2000

// plenty is what each key may have. Nearly nothing comes back within the row's time.
const plenty = 1_000_000

// consistencies are how daemons count, by turns.
var consistencies = []string{"exact", "leased", "async"}

// drain is the row: a Redis, and the daemon that is called now.
type drain struct {
	*trial
	server *redistest.Server
	file   string
	now    *rig.Daemon
	ended  []time.Duration // from SIGTERM to the end, of each daemon
	unread []time.Duration // from SIGTERM until it was not ready
	lost   rig.Tier        // what they said of their work
}

func newDrain(tr *trial) *drain {
	tr.Helper()
	// A Redis that does not answer briefly is no part of this row: hence the time-out,
	// and that nothing is admitted without Redis.
	d := &drain{trial: tr, server: redistest.Start(tr), file: config(tr, fmt.Sprintf(`
store: {redis: {timeout: 1s, on_error: closed}}
policies:
  default: {limits: [{rate: 1, per: 20m, burst: %d}]}
  slow: {limits: [{rate: 20, per: 1s, burst: 1}]}
envoy:
  - domain: faults
    descriptors: [{key: caller, rate_limit: {unit: year, requests_per_unit: %d}}]
`, plenty, plenty))}
	d.now = d.start(consistencies[0])
	return d
}

// start starts a daemon.
func (d *drain) start(consistency string) *rig.Daemon {
	d.Helper()
	return d.fleet(1, "-c", d.file, "--redis", d.server.Addr(), "--consistency", consistency,
		"--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0").Daemons[0]
}

func (d *drain) place() traffic.Place { return place(d.now) }

// untilBusy waits until each kind of callers had some more answers.
func (d *drain) untilBusy(callers *traffic.Traffic) {
	d.Helper()
	awaitCalls(d.trial, callers, pick(int64(100), 20))
}

// awaitCalls waits until each kind of callers had so many more answers.
func awaitCalls(tr *trial, callers *traffic.Traffic, more int64) {
	tr.Helper()
	want := map[string]int64{}
	for _, n := range callers.Tallies() {
		want[n.Name] = n.Calls() + more
	}
	rig.Await(tr, "all callers to be answered", patience, func() error {
		for _, n := range callers.Tallies() {
			if n.Calls() < want[n.Name] {
				return fmt.Errorf("%s: %d calls, want %d; %q", n.Name, n.Calls(), want[n.Name], n.Notes())
			}
		}
		return nil
	})
}

// replace tells the daemon to stop, and the callers to go to the next one as soon as they
// can know.
func (d *drain) replace(callers *traffic.Traffic, next *rig.Daemon) {
	d.Helper()
	old, began := d.now, time.Now()
	old.Terminate()
	d.awaitUnready(old)
	d.unread = append(d.unread, time.Since(began))
	d.now = next
	callers.Goto(d.place())
	tier := old.AwaitEnd() // which fails the test unless the exit code is 0
	d.ended = append(d.ended, time.Since(began))
	d.lost.Lost += tier.Lost
	d.lost.Unknown += tier.Unknown
	d.lost.Forfeited += tier.Forfeited
	d.lost.Decisions.Fallback += tier.Decisions.Fallback
}

// awaitUnready waits until a daemon says that it is not ready. One that cannot be reached any
// more has said nothing.
func (d *drain) awaitUnready(old *rig.Daemon) {
	d.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	for {
		resp, err := client.Get("http://" + old.Addr() + "/readyz")
		if err != nil {
			d.Fatalf("/readyz of a daemon that stops: %v", err)
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusServiceUnavailable {
			return
		}
	}
}

// judge looks at what became of all calls.
func (d *drain) judge(tallies []*traffic.Tally, cycles int, waited int64) {
	d.Helper()
	d.note("daemons stopped", "%d", cycles)
	for _, n := range tallies {
		retryable := ""
		if n := n.Told.Load(); n > 0 {
			retryable = fmt.Sprintf(", %d answered with \"not carried out\"", n)
		}
		d.note(n.Name, "%d calls%s", n.Calls(), retryable)
		d.none(n.Name+": dropped", int(n.Dropped.Load()))
		d.none(n.Name+": failed", int(n.Failed.Load()))
		d.none(n.Name+": connections refused", int(n.Refused.Load()))
		if n.Dropped.Load()+n.Failed.Load()+n.Refused.Load() > 0 {
			d.Logf("%s: %q", n.Name, n.Notes())
		}
	}
	d.atLeast("calls that were waiting for their turn at a SIGTERM", float64(waited), float64(cycles), "one each time")
	d.within("not ready after", longest(d.unread), 100*time.Millisecond)
	d.within("ended after", longest(d.ended), 10*time.Second)
	d.judgeUnits(tallies)
}

// judgeUnits looks at what Redis has, through another daemon.
func (d *drain) judgeUnits(tallies []*traffic.Tally) {
	d.Helper()
	d.none("units that could not be flushed to Redis", int(d.lost.Lost))
	d.note("decided without Redis, and unknown outcomes", "%d, %d", d.lost.Decisions.Fallback, d.lost.Unknown)
	admitted := map[string]int64{}
	for _, n := range tallies {
		admitted[n.Name] = n.Admitted.Load()
	}
	fleet := d.fleet(1, "-c", d.file, "--redis", d.server.Addr(), "--grpc", "127.0.0.1:0")
	missing, besides, all := int64(0), int64(0), int64(0)
	look := func(name string, used int64) {
		all += admitted[name]
		missing += max(0, admitted[name]-used)
		besides += max(0, used-admitted[name])
		if used != admitted[name] {
			d.Logf("%s: %d units admitted, %d in Redis", name, admitted[name], used)
		}
	}
	for _, name := range counted {
		answer, err := fleet.Peek(0, name)
		if err != nil || answer.Status != http.StatusOK {
			d.Fatalf("peek: %+v, %v", answer, err)
		}
		look(name, plenty-answer.Remaining)
	}
	look(kindEnvoy, d.envoyUsed(fleet.Daemons[0]))
	d.note("units admitted", "%d", all)
	d.none("of these, not in Redis", int(missing))
	d.atMost("in Redis besides", float64(besides), float64(d.lost.Unknown+d.lost.Forfeited), "unknown outcomes and leases forfeited")
}

// envoyUsed returns how many hits Envoy's key has had.
func (d *drain) envoyUsed(at *rig.Daemon) int64 {
	d.Helper()
	conn, err := grpc.NewClient(at.Listener("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		d.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	reply, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, traffic.EnvoyRequest("faults", "caller", kindEnvoy))
	if err != nil || len(reply.GetStatuses()) != 1 {
		d.Fatal(reply, err)
	}
	return plenty - int64(reply.GetStatuses()[0].GetLimitRemaining()) - 1 // this one
}

// longest is the greatest of some times.
func longest(list []time.Duration) (most time.Duration) {
	for _, t := range list {
		most = max(most, t)
	}
	return most
}
