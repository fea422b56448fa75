package measure_test

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/load/measure"
)

// A worker that is late by 300 ms: the server took 5 ms, but a user who waited for the
// answer had it after 305 ms.
func ExampleRun() {
	start := weir.Instant(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC).UnixNano())
	run := measure.NewRun(start)
	run.SetTarget(start, 1)

	worker := run.Recorder()
	due, began := start, start.Add(300*time.Millisecond)
	worker.Begin(due, began)
	worker.Record(measure.Op{Scheduled: due, Started: began, Ended: began.Add(5 * time.Millisecond), OK: true, Code: "200"})

	report := run.Report(start.Add(time.Second), measure.Meta{})
	fmt.Println("service ", report.ServiceMS.P99, "ms")
	fmt.Println("response", report.ResponseMS.P99, "ms")
	// Output:
	// service  5 ms
	// response 305 ms
}
