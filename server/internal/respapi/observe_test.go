package respapi

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/server/internal/observe"
	"github.com/weirlimit/weir/weirprom"
)

// A pipeline in which of two keys one is admitted twice and refused twice, the second time
// because it could never be admitted. Then somebody looks, and somebody errs.
const throttles = "CL.THROTTLE a 1 1 60\r\nCL.THROTTLE a 1 1 60\r\nCL.THROTTLE a 1 1 60\r\nCL.THROTTLE a 1 1 60 3\r\n" +
	"CL.THROTTLE b 1 1 60\r\nCL.THROTTLE b 1 1 60 0\r\nCL.THROTTLE b 1 1 0\r\n"

// Each decision of CL.THROTTLE is a record, in order, with who asked for what.
func TestThrottleRecords(t *testing.T) {
	f := newFixture(t, "alice")
	f.play("AUTH "+tokenOf("alice")+"\r\n", throttles)
	var got []string
	for i := range f.records {
		r := &f.records[i]
		got = append(got, fmt.Sprintf("%s %s %s %d %v %v, peek %v", r.Client, r.Policy(), r.Key, r.Cost, r.Allowed, r.Reason, r.Peek))
	}
	want := []string{
		"alice cl.throttle a 1 true admitted, peek false",
		"alice cl.throttle a 1 true admitted, peek false",
		"alice cl.throttle a 1 false exhausted, peek false",
		"alice cl.throttle a 3 false too_costly, peek false",
		"alice cl.throttle b 1 true admitted, peek false",
		"alice cl.throttle b 0 true admitted, peek true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want\n%q", got, want)
	}
}

// observed is a fixture with a daemon's observer.
func observed(t *testing.T) (*fixture, *observe.Observer) {
	t.Helper()
	f := newFixture(t)
	o := observe.New(weirprom.Memory, slog.New(slog.DiscardHandler))
	f.cfg.Core.Observe, f.cfg.Core.ObserveEach, f.cfg.ObserveAdmitted = o.Decided, o.DecidedEach, o.Admitted
	return f, o
}

// counted returns the counters of weir_decisions_total, and how many decisions were timed.
func counted(t *testing.T, o *observe.Observer) (counts map[string]float64, timed uint64) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(o.Decisions())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts = map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() == "weir_decisions_total" {
				counts[labels["policy"]+" "+labels["decision"]+" "+labels["reason"]] = m.GetCounter().GetValue()
			} else {
				timed += m.GetHistogram().GetSampleCount()
			}
		}
	}
	return counts, timed
}

// The metric counts all decisions of CL.THROTTLE, with and without somebody who watches
// each, and whether they come together or not.
func TestThrottleIsCounted(t *testing.T) {
	want := map[string]float64{"cl.throttle allowed admitted": 3, "cl.throttle denied exhausted": 1, "cl.throttle denied too_costly": 1}
	for _, tt := range []struct {
		name    string
		watched bool
		inputs  []string
	}{
		{"together", false, []string{throttles}},
		{"one by one", false, strings.SplitAfter(throttles, "\n")},
		{"watched", true, []string{throttles}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, o := observed(t)
			if tt.watched {
				records, _, cancel, err := o.Subscribe()
				if err != nil {
					t.Fatal(err)
				}
				defer cancel()
				defer func() {
					if len(records) != 5 {
						t.Errorf("%d decisions were sent to who watches, want 5", len(records))
					}
				}()
			}
			f.play(append(slices.Repeat([]string{"PING\r\n"}, timedOne-1), tt.inputs...)...) // so that the next round is timed
			if got, timed := counted(t, o); !maps.Equal(got, want) || timed != 1 {
				t.Errorf("%v, of which %d were timed; want %v and 1", got, timed, want)
			}
			if top := o.Top(1); len(top) != 1 || top[0].Label != "cl.throttle\x00a" || top[0].Count != 2 {
				t.Errorf("refused most: %+v", top)
			}
		})
	}
}

// Decisions that were admitted are counted without allocating.
func TestThrottlePipelineAllocates(t *testing.T) {
	if lighter(20) != 20 {
		t.Skip("the race detector allocates")
	}
	f, _ := observed(t)
	c := newConn(f.Server, &replay{sends: [][]byte{[]byte(strings.Repeat(multibulk("CL.THROTTLE", "k", "999999", "1000000", "1"), 16))}})
	round := func() {
		f.clock.Pass(time.Second)
		if err := c.in.Fill(); err != nil || !c.answer() {
			t.Fatal(err)
		}
	}
	round()
	if n := testing.AllocsPerRun(1000, round); n >= 1 {
		t.Errorf("a pipeline of 16 has %v allocations", n)
	}
}
