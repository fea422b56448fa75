package faults

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/faults/internal/rig"
	"github.com/weirlimit/weir/faults/internal/traffic"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
)

// F26: a daemon is stopped while new connections arrive, until it accepts no more. Unlike in F12
// nobody tells its callers.
func TestStop(t *testing.T) {
	tr := try(t, "F26", "SIGTERM to a daemon, 50 times, while callers over all protocols connect for each call, some of them long before it, until connections are refused",
		"no call that was sent is without a complete answer, or a reply that it was not carried out; exit code 0")
	stops := pick(50, 3)
	now := startStopped(tr)
	callers := traffic.Start(t, place(now))
	addNewcomers(callers)
	for range stops {
		awaitCalls(tr, callers, pick(int64(50), 20))
		next := startStopped(tr)
		now.Terminate()
		now.AwaitEnd() // which fails the test unless the exit code is 0
		callers.Goto(place(next))
		now = next
	}
	awaitCalls(tr, callers, 1)
	tallies := callers.Stop()
	now.Stop()
	tr.note("daemons stopped", "%d", stops)
	for _, n := range tallies {
		tr.note(n.Name, "%d calls, %d answered with \"not carried out\", %d connections refused", n.Calls(), n.Told.Load(), n.Refused.Load())
		tr.none(n.Name+": dropped", int(n.Dropped.Load()))
		tr.none(n.Name+": failed", int(n.Failed.Load()))
		if n.Dropped.Load()+n.Failed.Load() > 0 {
			tr.Logf("%s: %q", n.Name, n.Notes())
		}
	}
}

// startStopped starts a daemon with all listeners.
func startStopped(tr *trial) *rig.Daemon {
	tr.Helper()
	return tr.fleet(1, "--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0").Daemons[0]
}

// place returns where a daemon listens.
func place(d *rig.Daemon) traffic.Place {
	return traffic.Place{HTTP: d.Listener("http"), GRPC: d.Listener("grpc"), RESP: d.Listener("resp")}
}

// addNewcomers starts callers that make each call on a new connection. Those over RESP call within
// a second after they have connected: a silent connection is closed then, without a message.
func addNewcomers(f *traffic.Traffic) {
	check := func() *weirv1.CheckRequest { return &weirv1.CheckRequest{Policy: rig.Policy, Key: "stop"} }
	http := traffic.HTTP("/v1/check", traffic.Always(`{"policy":"default","key":"stop"}`))
	resp := traffic.RESP(1, 1, traffic.Command("WEIR.CHECK", rig.Policy, "stop"))
	often := traffic.UpTo(5 * time.Millisecond)
	f.Add("HTTP/1.1", 4, often, traffic.Once(http))
	f.Add("HTTP/1.1, late", 16, often, traffic.Late(traffic.UpTo(2*time.Second), http))
	f.Add("Connect, HTTP/2", 2, often, traffic.Once(traffic.Connect(2, check)))
	f.Add("gRPC", 2, often, traffic.Once(traffic.GRPC(check)))
	f.Add("RESP", 4, often, traffic.Once(resp))
	f.Add("RESP, late", 16, often, traffic.Late(traffic.UpTo(700*time.Millisecond), resp))
}
