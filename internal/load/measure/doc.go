// Package measure times the operations of a load test, and tells what it found out.
//
//	run := measure.NewRun(weir.Now())
//	run.SetTarget(weir.Now(), 5000)
//	rec := run.Recorder() // one for each worker
//	rec.Begin(scheduled, started)
//	rec.Record(measure.Op{Scheduled: scheduled, Started: started, Ended: weir.Now(), OK: true, Code: "200"})
//	report := run.Report(weir.Now(), measure.Meta{Target: "http://…", Connections: 64})
//	err := report.WriteText(os.Stdout)
//
// # Three times
//
// An operation has an instant at which it was due, one at which it began and one at
// which it ended:
//
//	service time  = ended - started
//	wait time     = started - scheduled, 0 if it began early
//	response time = service time + wait time
//
// While a server stalls, its clients are busy waiting, and do not begin what is due. So
// few operations see the stall, and percentiles of the service time look well: this is
// coordinated omission. The response time counts from when an operation was due, which
// is what a user would have seen. Reports show both side by side.
//
// Failed operations count like the others: without them a server would look the better
// the more of its operations time out. An operation belongs to the second in which it
// ended. Operations that never ended are in no percentile; [Recorder.Begin] lets the
// report count them.
//
// # Precision
//
// Percentiles of the whole run have three significant digits, from 1 µs to 10 minutes;
// minimum, mean and maximum are exact. What took longer than 10 minutes counts as 10
// minutes in the percentiles, and the report says how many did. Percentiles of one second
// of the run are at most 1 % too high.
//
// # What it costs
//
// Recording takes no lock that other workers hold, as a rule, and does not allocate:
// operations go to a buffer of the worker's own and from there, a hundred or so at a
// time, to the run. If the run is busy then, the worker tries again after its next
// operation, and waits only if the buffer is full. A worker that is stuck holds nothing
// that others need, and what it records late still finds its second.
//
// A recorder takes 16 KB, and a run 0.6 MB plus 25 KB for each second in which something
// ended. There are no more than 600 such points: after ten minutes two neighbours become
// one, of two seconds, after twenty minutes of four, and so on. So a run takes 16 MB at
// most, however long it is. Merging them takes a few milliseconds of one worker's time.
package measure
