package measure

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// t0 is when the runs of these tests start.
var t0 = weir.Instant(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC).UnixNano())

// after returns t0 plus some milliseconds.
func after(ms float64) weir.Instant { return t0.Add(duration(ms)) }

// op is an operation that went well, with its three times in milliseconds after t0.
func op(scheduled, started, ended float64) Op {
	return Op{Scheduled: after(scheduled), Started: after(started), Ended: after(ended), OK: true, Code: "200", Bytes: 100}
}

// failed is one that did not.
func failed(scheduled, started, ended float64, code string) Op {
	o := op(scheduled, started, ended)
	o.OK, o.Code, o.Bytes = false, code, 0
	return o
}

// recorded returns a run with the operations in it.
func recorded(ops ...Op) *Run {
	r := NewRun(t0)
	rc := r.Recorder()
	for _, o := range ops {
		rc.Record(o)
	}
	return r
}

// stalled is a trace of one worker at 100 operations a second for 20 s: each takes 1 ms,
// but the server answers nothing from second 10 to second 11.
func stalled() []Op {
	var ops []Op
	free := 0.0
	for due := 0.0; due < 20_000; due += 10 {
		start := max(due, free)
		free = start + 1
		if start < 11_000 && free > 10_000 {
			free = 11_000
		}
		ops = append(ops, op(due, start, free))
	}
	return ops
}

// stalledReport is the report on that, with a few failures and everything else that a
// report can have in it.
func stalledReport() Report {
	r := NewRun(t0)
	r.SetTarget(t0, 100)
	rc := r.Recorder()
	for i, o := range stalled() {
		if i%100 == 42 && i > 1200 {
			o.OK, o.Code = false, "503"
		}
		rc.Record(o)
	}
	r.SetTarget(after(20_000), 0)
	r.Recorder().Begin(after(19_500), after(19_510))
	return r.Report(after(20_000), Meta{Target: "http://localhost:8080/check?key=a&cost=<1>", Connections: 1, Unstarted: 2, Interrupted: true})
}
